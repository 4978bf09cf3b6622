package lxd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// Each test here guards against a defect that an LXD client can have, for
// example a goroutine that outlives its request.

func TestCancellingOneOperationLeavesOthersAlone(t *testing.T) {
	f := newFakeLXD(t)
	arrived, release := make(chan bool, 2), make(chan bool)
	f.mux.HandleFunc("GET /1.0/instances", func(w http.ResponseWriter, r *http.Request) {
		arrived <- true
		select {
		case <-release:
			reply(w, "sync", []api.Instance{})
		case <-r.Context().Done():
		}
	})
	d := f.driver(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancelled, other := make(chan error, 1), make(chan error, 1)
	list := func(ctx context.Context, done chan error) {
		_, err := d.List(ctx, false)
		done <- err
	}
	go list(ctx, cancelled)
	go list(t.Context(), other)
	<-arrived
	<-arrived
	cancel()
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled one: %v", err)
	}
	close(release)
	if err := <-other; err != nil {
		t.Errorf("the other one: %v", err)
	}
}

func TestCallsLeaveNoGoroutines(t *testing.T) {
	f := newFakeLXD(t)
	f.answer("GET /1.0/instances", []api.Instance{})
	upgrader := websocket.Upgrader{}
	f.mux.HandleFunc("GET /1.0/events", func(w http.ResponseWriter, r *http.Request) {
		if conn, err := upgrader.Upgrade(w, r, nil); err == nil {
			defer func() { _ = conn.Close() }()
			drain(conn)
		}
	})
	d := f.driver(nil)
	before := goleak.IgnoreCurrent()
	for range 20 {
		if _, err := d.List(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		events, err := d.Events(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		for range events { // it ends
		}
	}
	goleak.VerifyNone(t, before)
}

func TestSilentLXDTimesOut(t *testing.T) {
	f := newFakeLXD(t)
	f.mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	d := f.driver(func(o *Options) { o.RequestTimeout = 50 * time.Millisecond })
	for what, call := range map[string]func() error{
		"list":   func() error { _, err := d.List(t.Context(), false); return err },
		"create": func() error { return d.Create(t.Context(), testMachine(), nil) },
		"delete": func() error { return d.Delete(t.Context(), "web", testMachine().Stamp) },
		"start":  func() error { return d.SetPower(t.Context(), "web", containerbroker.PowerStart, 0) },
	} {
		begin := time.Now()
		err := call()
		if fault.KindOf(err) != fault.Transient || time.Since(begin) > 5*time.Second {
			t.Errorf("%s: %v after %s", what, err, time.Since(begin))
		}
	}
}

func TestAbsentLXDIsTransient(t *testing.T) {
	d := New(Options{Socket: "/nonexistent/socket"})
	if _, err := d.List(t.Context(), false); fault.KindOf(err) != fault.Transient {
		t.Errorf("list: %v", err)
	}
	if _, err := d.Events(t.Context()); fault.KindOf(err) != fault.Transient {
		t.Errorf("events: %v", err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	f := newFakeLXD(t)
	f.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere/1.0/instances", http.StatusFound)
	})
	if _, err := f.driver(nil).List(t.Context(), false); err == nil {
		t.Error("a redirect was taken for a list")
	}
	if n := f.count(http.MethodGet); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestListIsOneRequest(t *testing.T) {
	f := newFakeLXD(t)
	f.answer("GET /1.0/instances", []api.Instance{stamped(api.Running)})
	for _, detail := range []bool{false, true} {
		before := f.count(http.MethodGet)
		if all, err := f.driver(nil).List(t.Context(), detail); err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		if n := f.count(http.MethodGet) - before; n != 1 {
			t.Errorf("%d requests", n)
		}
	}
}

// F27: any incomplete listing is an error.
func TestDamagedListIsAnError(t *testing.T) {
	whole := `{"type": "sync", "metadata": [{"name": "a"}, {"name": "b"}]}`
	for what, body := range map[string]string{
		"cut":           whole[:len(whole)-12],
		"nothing":       "",
		"no content":    `{"type": "sync"}`,
		"null":          `{"type": "sync", "metadata": null}`,
		"an object":     `{"type": "sync", "metadata": {}}`,
		"no type":       `{"metadata": []}`,
		"twice":         `{"type": "sync", "metadata": [{"name": "a"}, {"name": "a"}]}`,
		"without names": `{"type": "sync", "metadata": [{"status_code": 102}]}`,
	} {
		f := newFakeLXD(t)
		f.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
		if all, err := f.driver(nil).List(t.Context(), false); err == nil || all != nil || fault.KindOf(err) != fault.Transient {
			t.Errorf("%s: %v, %v", what, all, err)
		}
	}
}

// F7: a create is sent once, even if its answer is lost.
func TestCreateIsNeverSentTwice(t *testing.T) {
	f := newFakeLXD(t)
	f.mux.HandleFunc("POST /1.0/instances", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	f.mux.HandleFunc("GET /1.0/instances/web", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 404, "not found") })
	if err := f.driver(nil).Create(t.Context(), testMachine(), nil); fault.KindOf(err) != fault.Transient {
		t.Errorf("%v", err)
	}
	if n := f.count(http.MethodPost); n != 1 {
		t.Errorf("%d posts", n)
	}
}

// LXD forgets finished operations: the instance itself shows the outcome.
func TestForgottenOperationIsLookedUp(t *testing.T) {
	f := newFakeLXD(t)
	f.mux.HandleFunc("POST /1.0/instances", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, "async", api.Operation{ID: "1234", StatusCode: api.Running})
	})
	f.mux.HandleFunc("GET /1.0/operations/1234/wait", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 404, "not found") })
	f.answer("GET /1.0/instances/web", stamped(api.Stopped))
	if err := f.driver(nil).Create(t.Context(), testMachine(), nil); err != nil {
		t.Error(err)
	}
}

// A simultaneous change by another client is not lost.
func TestUpdateLooksAgainWhenOvertaken(t *testing.T) {
	f := newFakeLXD(t)
	var reads atomic.Int32
	f.mux.HandleFunc("GET /1.0/instances/web", func(w http.ResponseWriter, _ *http.Request) {
		found := stamped(api.Running)
		found.Config["user.version"] = fmt.Sprint(reads.Add(1))
		w.Header().Set("ETag", found.Config["user.version"])
		reply(w, "sync", found)
	})
	var written api.InstancePut
	f.mux.HandleFunc("PUT /1.0/instances/web", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-Match") != "3" {
			refuse(w, http.StatusPreconditionFailed, "changed")
			return
		}
		_ = json.NewDecoder(r.Body).Decode(&written)
		reply(w, "async", api.Operation{ID: "1"})
	})
	f.answer("GET /1.0/operations/1/wait", api.Operation{ID: "1", StatusCode: api.Success})
	m := testMachine()
	m.CPUs = 3
	if err := f.driver(nil).Update(t.Context(), m, []containerbroker.Change{{Field: containerbroker.FieldCPUs}}); err != nil {
		t.Fatal(err)
	}
	if written.Config[keyCPUs] != "3" || written.Config["user.version"] != "3" {
		t.Errorf("written: %v", written.Config)
	}
}

// L11: a busy instance is tried again, and then gives a transient error.
func TestBusyInstanceIsDeletedLater(t *testing.T) {
	for refusals, kind := range map[int32]fault.Kind{deleteTries - 1: "", deleteTries: fault.Transient} {
		f := newFakeLXD(t)
		f.answer("GET /1.0/instances/web", stamped(api.Stopped))
		f.answer("GET /1.0/operations", map[string][]api.Operation{})
		f.answer("GET /1.0/operations/1/wait", api.Operation{ID: "1", StatusCode: api.Success})
		var tries atomic.Int32
		f.mux.HandleFunc("DELETE /1.0/instances/web", func(w http.ResponseWriter, _ *http.Request) {
			if tries.Add(1) <= refusals {
				refuse(w, http.StatusBadRequest, "Instance is busy")
				return
			}
			reply(w, "async", api.Operation{ID: "1"})
		})
		if err := f.driver(nil).Delete(t.Context(), "web", testMachine().Stamp); fault.KindOf(err) != kind {
			t.Errorf("after %d refusals: %v", refusals, err)
		}
	}
}

func TestEventsKeepTheirOrder(t *testing.T) {
	f := newFakeLXD(t)
	upgrader := websocket.Upgrader{}
	f.mux.HandleFunc("GET /1.0/events", func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		for i := range 500 {
			_ = conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil,
				`{"type": "lifecycle", "metadata": {"action": "instance-started", "source": "/1.0/instances/i%d"}}`, i))
		}
	})
	events, err := f.driver(nil).Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := 0
	for event := range events {
		if want := fmt.Sprint("i", next); event.Instance != want || event.Action != "started" {
			t.Fatalf("event %d is %+v", next, event)
		}
		next++
	}
	if next != 500 {
		t.Errorf("%d events", next)
	}
}

// F8: a stream that is silent even to pings is closed; a quiet stream that
// answers pings is kept.
func TestSilentEventStreamEnds(t *testing.T) {
	for _, answers := range []bool{false, true} {
		f := newFakeLXD(t)
		upgrader := websocket.Upgrader{}
		var pings atomic.Int32
		enough, hold := make(chan bool), make(chan bool)
		f.mux.HandleFunc("GET /1.0/events", func(w http.ResponseWriter, r *http.Request) {
			conn, err := upgrader.Upgrade(w, r, nil)
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			if !answers {
				<-hold
				return
			}
			pong := conn.PingHandler()
			conn.SetPingHandler(func(data string) error {
				if pings.Add(1) == 6 { // twice the allowed silence
					close(enough)
				}
				return pong(data)
			})
			drain(conn)
		})
		events, err := f.driver(func(o *Options) { o.EventTimeout = time.Second }).Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-events:
			if answers {
				t.Error("a stream that answers pings was given up")
			}
		case <-enough:
		case <-time.After(10 * time.Second):
			t.Error("a dead stream was kept")
		}
		close(hold)
		if n := f.count(http.MethodGet); n != 1 {
			t.Errorf("%d requests", n)
		}
	}
}

func TestRefusedWebsocketIsAnError(t *testing.T) {
	f := newFakeLXD(t)
	f.answer("GET /1.0/events", "not a websocket")
	if events, err := f.driver(nil).Events(t.Context()); err == nil || events != nil {
		t.Errorf("%v, %v", events, err)
	}
}
