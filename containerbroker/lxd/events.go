package lxd

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/gorilla/websocket"

	"hostler/containerbroker"
	"hostler/internal/alarm"
)

// eventBuffer is how many events may wait for a slow reader before the stream
// counts as lost.
const eventBuffer = 1024

// maxEvent bounds one event in bytes.
const maxEvent = 1 << 20

// quiet are the lifecycle actions that change nothing about an instance, e.g.
// because a client only read from it.
var quiet = map[string]bool{
	"console": true, "console-reset": true, "console-retrieved": true, "exec": true,
	"file-deleted": true, "file-pushed": true, "file-retrieved": true,
	"log-deleted": true, "log-retrieved": true,
	"metadata-retrieved": true, "metadata-template-retrieved": true, "backup-retrieved": true,
}

// made are the lifecycle actions that may create an object for which an
// instance was waiting, such as its image.
var made = map[string]bool{"image-created": true, "image-alias-created": true, "network-created": true}

// Events implements containerbroker.EventSource with LXD's lifecycle events. A
// single goroutine reads them in order and also passes the ends of operations
// to their callers. A stream that is silent for longer than
// Options.EventTimeout is closed; see prove.
func (d *Driver) Events(ctx context.Context) (<-chan containerbroker.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := d.open(ctx, 0)
	conn, release, err := c.websocket("/1.0/events?type=lifecycle,operation")
	if err != nil {
		cancel()
		return nil, err
	}
	conn.SetReadLimit(maxEvent)
	silence, err := alarm.New()
	if err != nil {
		cancel()
		release()
		return nil, err
	}
	var asked atomic.Bool // LXD was pinged and has not answered yet
	alive := func() {
		asked.Store(false)
		silence.Set(d.opts.EventTimeout * 5 / 6)
		d.silent.Store(false)
	}
	alive()
	conn.SetPongHandler(func(string) error { alive(); return nil })
	conn.SetPingHandler(func(data string) error {
		alive()
		return conn.WriteControl(websocket.PongMessage, []byte(data), unlimited)
	})

	events := make(chan containerbroker.Event, eventBuffer)
	unwatch := d.inits.follow(func(name string, pid int64) {
		tell := func() {
			select {
			case events <- containerbroker.Event{Instance: name, Action: "shutdown"}:
			case <-ctx.Done():
			}
		}
		tell() // the reader lists at once, and its listing waits for LXD's cleanup at the same time as awaitDeath()
		d.awaitDeath(ctx, name, pid)
		tell()
	})
	unfollow := d.results.follow()
	go d.prove(ctx, conn, silence, &asked)
	go func() {
		defer close(events)
		defer silence.Close()
		defer unwatch()
		defer unfollow()
		defer cancel()
		defer release()
		for {
			_, data, err := conn.ReadMessage()
			if err != nil {
				d.log.Debug("The event stream ended.", "error", err)
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
				d.log.Warn("The event stream is dropped, because its reader is too slow.")
				return
			}
		}
	}()
	return events, nil
}

// unlimited is the deadline of a short message. A real deadline would remain
// set after the write and wake an idle agent once more. The write cannot block,
// because a stream with unanswered pings is closed long before the socket's
// buffer is full.
var unlimited time.Time

// prove pings LXD when the stream was silent for five sixths of the time limit,
// and closes the stream if the last sixth brings no answer. A ping costs LXD no
// request, but wakes several threads of an idle agent. LXD itself pings every
// ten seconds, so with the default limit the agent
// asks once between two pings of LXD.
func (d *Driver) prove(ctx context.Context, conn *websocket.Conn, silence *alarm.Alarm, asked *atomic.Bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-silence.C:
		}
		// An answer sets the alarm anew, so set it before the question.
		silence.Set(d.opts.EventTimeout / 6)
		unanswered := asked.Swap(true)
		d.silent.Store(unanswered)
		if unanswered || conn.WriteControl(websocket.PingMessage, nil, unlimited) != nil {
			_ = conn.Close()
			return
		}
	}
}

// eventOf decodes one message of the stream. It returns false if the worker
// does not need the event. The event's action is LXD's action without the
// prefix "instance-".
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
