package kvm

import (
	"context"
	"fmt"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/internal/kvm/rpc"
)

// watch follows a running guest through libvirt's events, so that a wait for
// its agent needs no repeated calls.
type watch struct {
	session *session
	heard   chan rpc.Event // nil if the stream ended
}

// watchBuffer is how many events of its guest may wait for a watch.
const watchBuffer = 16

// watch begins to follow a guest. The caller must call end.
func (d *Driver) watch(ctx context.Context, dom libvirt.Domain) (*watch, error) {
	s, err := d.session(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot follow libvirt: %w", err)
	}
	heard, ok := s.subscribe(watchBuffer, func(e rpc.Event) bool { return e.UUID == dom.UUID && !begins(e) })
	if !ok {
		return nil, fmt.Errorf("cannot follow libvirt: %w", rpc.ErrLost)
	}
	return &watch{session: s, heard: heard}, nil
}

// begins reports whether an event belongs to the definition or to the start of
// a guest. They may arrive after the answers to the calls that caused them.
func begins(e rpc.Event) bool {
	if e.Procedure != rpc.ProcLifecycle {
		return false
	}
	switch libvirt.DomainEventType(e.Code) {
	case libvirt.DomainEventDefined, libvirt.DomainEventStarted, libvirt.DomainEventResumed:
		return true
	}
	return false
}

func (w *watch) end() { w.session.unsubscribe(w.heard) }

// wait returns after the given time, or earlier with the guest's next event.
// changed is true if the guest may have changed since the watch began or since
// the last wait. It returns an error only if ctx ends.
func (w *watch) wait(ctx context.Context, most time.Duration) (changed bool, err error) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case _, open := <-w.heard:
		if !open {
			w.heard = nil
		}
		return true, nil
	case <-timer.C:
		return w.heard == nil, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
