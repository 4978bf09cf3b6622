package lxd

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/gorilla/websocket"

	"hostler/containerbroker"
)

// eventBuffer is how many events may wait for a slow reader before the stream
// counts as lost.
const eventBuffer = 1024

// maxEvent bounds one event in bytes.
const maxEvent = 1 << 20

// quiet are the lifecycle actions that change nothing about an instance, e.g.
// the results of looking at it.
var quiet = map[string]bool{
	"console": true, "console-reset": true, "console-retrieved": true, "exec": true,
	"file-deleted": true, "file-pushed": true, "file-retrieved": true,
	"log-deleted": true, "log-retrieved": true,
	"metadata-retrieved": true, "metadata-template-retrieved": true, "backup-retrieved": true,
}

// made are the other lifecycle actions that may provide something an instance
// was waiting for, such as its image.
var made = map[string]bool{"image-created": true, "image-alias-created": true, "network-created": true}

// Events implements containerbroker.EventSource with LXD's lifecycle events,
// read in order by a single goroutine, which also passes the ends of operations
// to their callers. It closes a stream that is silent for
// longer than Options.EventTimeout. Pings keep an idle stream alive and cost
// LXD no request.
func (d *Driver) Events(ctx context.Context) (<-chan containerbroker.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := d.open(ctx, 0)
	conn, release, err := c.websocket("/1.0/events?type=lifecycle,operation")
	if err != nil {
		cancel()
		return nil, err
	}
	conn.SetReadLimit(maxEvent)
	alive := func() { _ = conn.SetReadDeadline(time.Now().Add(d.opts.EventTimeout)) }
	alive()
	conn.SetPongHandler(func(string) error { alive(); return nil })
	answer := conn.PingHandler()
	conn.SetPingHandler(func(data string) error { alive(); return answer(data) })

	events := make(chan containerbroker.Event, eventBuffer)
	unwatch := d.inits.follow(func(name string, pid int64) {
		tell := func() {
			select {
			case events <- containerbroker.Event{Instance: name, Action: "shutdown"}:
			case <-ctx.Done():
			}
		}
		tell() // most of a listing made now is also spent waiting for LXD's cleanup, like awaitDeath
		d.awaitDeath(ctx, name, pid)
		tell()
	})
	unfollow := d.results.follow()
	go d.pingLoop(ctx, conn)
	go func() {
		defer close(events)
		defer unwatch()
		defer unfollow()
		defer cancel()
		defer release()
		for {
			_, data, err := conn.ReadMessage()
			if err != nil {
				d.log.Debug("LXD event stream ended", "error", err)
				return
			}
			alive()
			event, ok := d.eventOf(data)
			if !ok {
				continue
			}
			if strings.HasPrefix(event.Action, "profile-") {
				d.forgetProfile()
			}
			select {
			case events <- event:
			default:
				d.log.Warn("LXD event stream is dropped: its reader is too slow")
				return
			}
		}
	}()
	return events, nil
}

// pingLoop proves that an idle stream is alive. A ping costs LXD no request, but
// wakes threads of an idle agent twice. Two thirds of the time limit leave the
// last third for the answer.
func (d *Driver) pingLoop(ctx context.Context, conn *websocket.Conn) {
	ticker := time.NewTicker(d.opts.EventTimeout * 2 / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C: // maybe late: the time limit counts from now
			if conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(d.opts.EventTimeout/3)) != nil {
				return
			}
		}
	}
}

// eventOf reads one message of the stream; false means that the worker does not
// need it. The action is LXD's without the prefix "instance-".
func (d *Driver) eventOf(data []byte) (containerbroker.Event, bool) {
	var event api.Event
	if json.Unmarshal(data, &event) != nil {
		return containerbroker.Event{}, false
	}
	switch event.Type {
	case api.EventTypeOperation:
		var op api.Operation
		if json.Unmarshal(event.Metadata, &op) == nil {
			d.results.note(op)
		}
		return containerbroker.Event{}, false
	case api.EventTypeLifecycle:
		return lifecycleOf(event)
	}
	return containerbroker.Event{}, false
}

func lifecycleOf(event api.Event) (containerbroker.Event, bool) {
	var lifecycle api.EventLifecycle
	if json.Unmarshal(event.Metadata, &lifecycle) != nil {
		return containerbroker.Event{}, false
	}
	if action, ok := strings.CutPrefix(lifecycle.Action, "instance-"); ok {
		if quiet[action] {
			return containerbroker.Event{}, false
		}
		return containerbroker.Event{Instance: instanceIn(lifecycle.Source), Action: clean(action, 64)}, true
	}
	// A profile or pool that instances use may have changed, or an object that
	// an instance needs was created.
	if strings.HasPrefix(lifecycle.Action, "profile-") || strings.HasPrefix(lifecycle.Action, "storage-pool-") || made[lifecycle.Action] {
		return containerbroker.Event{Action: clean(lifecycle.Action, 64)}, true
	}
	return containerbroker.Event{}, false
}

// instanceIn returns the name of the instance in a source such as
// /1.0/instances/web/snapshots/one?project=p, or "".
func instanceIn(source string) string {
	u, err := url.Parse(source)
	if err != nil {
		return ""
	}
	fields := strings.Split(u.EscapedPath(), "/")
	if len(fields) < 4 || fields[2] != "instances" && fields[2] != "containers" && fields[2] != "virtual-machines" {
		return ""
	}
	name, err := url.PathUnescape(fields[3])
	if err != nil || clean(name, 64) != name {
		return ""
	}
	return name
}
