package lxd

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/gorilla/websocket"
)

// The event stream says how an operation ended, so that nothing is asked. An end
// that the stream does not bring, and any end without a stream, is asked for.
func TestEndsOfOperationsComeWithTheEvents(t *testing.T) {
	f := newFakeLXD(t)
	send := make(chan api.Operation)
	upgrader := websocket.Upgrader{}
	f.mux.HandleFunc("GET /1.0/events", func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("type"); got != "lifecycle,operation" {
			t.Errorf("events of type %q", got)
		}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		for op := range send {
			_ = conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil,
				`{"type": "operation", "metadata": {"id": %q, "status_code": %d, "err": %q, "metadata": {"return": 126}}}`, op.ID, op.StatusCode, op.Err))
		}
	})
	f.answer("GET /1.0/operations/asked/wait", api.Operation{ID: "asked", StatusCode: api.Success})
	d := f.driver(nil)
	events, err := d.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := d.open(t.Context(), time.Minute)
	before := f.count(http.MethodGet)

	go func() {
		send <- api.Operation{ID: "good", StatusCode: api.Running}
		send <- api.Operation{ID: "early", StatusCode: api.Success}
		send <- api.Operation{ID: "good", StatusCode: api.Success}
		send <- api.Operation{ID: "bad", StatusCode: api.Failure, Err: "no room"}
	}()
	if op, err := d.wait(c, api.Operation{ID: "good"}); err != nil || op.StatusCode != api.Success {
		t.Errorf("good: %+v, %v", op, err)
	}
	if _, err := d.wait(c, api.Operation{ID: "early"}); err != nil {
		t.Errorf("early: %v", err)
	}
	var refused *operationError
	if _, err := d.wait(c, api.Operation{ID: "bad"}); !errors.As(err, &refused) || refused.message != "no room" || refused.code != 126 {
		t.Errorf("bad: %v", err)
	}
	if n := f.count(http.MethodGet) - before; n != 0 {
		t.Errorf("%d requests beside the stream", n)
	}
	if _, err := d.wait(c, api.Operation{ID: "asked"}); err != nil {
		t.Errorf("an end that the stream does not bring: %v", err)
	}

	close(send)
	for range events {
	}
	before = f.count(http.MethodGet)
	if _, err := d.wait(c, api.Operation{ID: "asked"}); err != nil || f.count(http.MethodGet) != before+1 {
		t.Errorf("without a stream: %v, %d requests", err, f.count(http.MethodGet)-before)
	}
}

// A listing that began before the end of a create may still show the instance
// half made.
func TestACreateCountsForListingsThatBeganBeforeItsEnd(t *testing.T) {
	var own ownChanges
	before := time.Now()
	if own.wasCreating("web", before) {
		t.Error("a create that never began")
	}
	end := own.beginCreate("web")
	if !own.wasCreating("web", before) || own.wasCreating("db", before) {
		t.Error("a create that goes on is not seen, or seen for another instance")
	}
	end(false)
	if !own.wasCreating("web", before) {
		t.Error("the end of the create hides it from an earlier listing")
	}
	if own.wasCreating("web", time.Now()) {
		t.Error("a listing after the end takes the create for one that goes on")
	}
}
