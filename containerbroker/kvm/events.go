package kvm

import (
	"context"
	"fmt"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
	"hostler/internal/kvm/rpc"
)

const (
	// eventBuffer is how many events may wait for a slow reader before the
	// stream counts as lost.
	eventBuffer = 1024
	// pingEvery is the interval between checks of an idle stream. The check
	// finds a libvirt that hangs, because the socket of a libvirt that died
	// closes at once. An idle agent must make no more than two calls a minute
	// in all.
	pingEvery   = time.Minute
	pingTimeout = 5 * time.Second
)

// lifecycleWords are the names of libvirt's lifecycle events. An event's number
// is its index.
var lifecycleWords = []string{"defined", "undefined", "started", "suspended", "resumed", "stopped", "shutdown", "pmsuspended", "crashed"}

// Events implements containerbroker.EventSource.
func (d *Driver) Events(ctx context.Context) (<-chan containerbroker.Event, error) {
	s, err := d.session(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot follow libvirt: %w", err)
	}
	heard, ok := s.subscribe(eventBuffer, func(rpc.Event) bool { return true })
	if !ok {
		return nil, fmt.Errorf("cannot follow libvirt: %w", rpc.ErrLost)
	}
	events := make(chan containerbroker.Event)
	go func() {
		defer close(events)
		defer s.unsubscribe(heard)
		ping := time.NewTicker(pingEvery)
		defer ping.Stop()
		for {
			var event containerbroker.Event
			select {
			case <-ctx.Done():
				return
			case <-ping.C:
				err := s.CallWithin(pingTimeout, "ask libvirt for its version", func(l *libvirt.Libvirt) error {
					_, err := l.ConnectGetLibVersion()
					return err
				})
				if err != nil {
					d.log.Debug("libvirt event stream ended", "error", err)
					s.Close()
					return
				}
				continue
			case e, open := <-heard:
				if !open {
					return
				}
				event = eventOf(e)
			}
			select {
			case events <- event:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events, nil
}

func eventOf(e rpc.Event) containerbroker.Event {
	action := "changed"
	if e.Procedure == rpc.ProcLifecycle && int(e.Code) < len(lifecycleWords) {
		action = lifecycleWords[e.Code]
	}
	if clean(e.Name, 64) != e.Name {
		return containerbroker.Event{Action: action}
	}
	return containerbroker.Event{Instance: e.Name, Action: action}
}
