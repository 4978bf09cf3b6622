package workerapi

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"hostler/agent/state"
	"hostler/agent/state/statetest"
	"hostler/internal/fault"
	"hostler/internal/hosttest"
)

func TestNoAgentListens(t *testing.T) {
	s := NewStore(filepath.Join(hosttest.SocketDir(t), "absent.sock"), "lxd")
	defer s.Close()
	if _, _, err := s.List(t.Context()); !fault.Is(err, fault.NotReady) {
		t.Errorf("list: %v", err)
	}
	if _, err := s.Watch(t.Context()); !fault.Is(err, fault.NotReady) {
		t.Errorf("watch: %v", err)
	}
}

// A watch ends when the stream has been silent for too long: the store never
// looks empty.
func TestSilentWatchesAreClosed(t *testing.T) {
	t.Run("silence", func(t *testing.T) {
		socket := filepath.Join(hosttest.SocketDir(t), "silent.sock")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		gone := make(chan struct{})
		srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "{}\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			close(gone)
		})}
		go func() { _ = srv.Serve(l) }()
		defer srv.Close()
		s := NewStore(socket, "lxd")
		defer s.Close()
		s.silenceLimit = 50 * time.Millisecond
		ch, err := s.Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		statetest.WantEnd(t, ch)
		<-gone
	})
	t.Run("heartbeats keep it", func(t *testing.T) {
		b, l := workerBench(t)
		s := b.worker(t, "")
		s.silenceLimit = 500 * time.Millisecond // the bench sends a heartbeat every 20 ms
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ch, err := s.Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		<-ch
		select {
		case ids, ok := <-ch:
			t.Fatalf("ids %v, %v", ids, ok)
		case <-time.After(700 * time.Millisecond):
		}
		id := state.ID{Kind: "machine", Name: "web"}
		if _, err := l.Write(t.Context(), state.Atomic, state.Write{ID: id}); err != nil {
			t.Fatal(err)
		}
		if ids := <-ch; len(ids) != 1 || ids[0] != id {
			t.Errorf("ids %v", ids)
		}
	})
}
