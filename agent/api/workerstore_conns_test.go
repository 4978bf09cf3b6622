package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/workerapi"
	"hostler/internal/hosttest"
)

// slowAgent serves a worker's calls and holds them until released.
type slowAgent struct {
	socket         string
	calls, streams atomic.Int32 // in progress
	conns          atomic.Int32 // accepted
	release        chan struct{}
}

func newSlowAgent(t *testing.T) *slowAgent {
	t.Helper()
	a := &slowAgent{socket: filepath.Join(hosttest.SocketDir(t), "slow.sock"), release: make(chan struct{})}
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			a.conns.Add(1)
		}
	}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "images/ensure") {
			a.streams.Add(1)
			<-r.Context().Done()
			return
		}
		a.calls.Add(1)
		<-a.release
		_, _ = io.WriteString(w, "{}")
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return a
}

// The store of 256 simultaneous operations stays below the agent's limit on a
// worker's connections: its calls wait for each other and none is refused.
func TestManyCallsOfAWorkerShareFewConnections(t *testing.T) {
	a := newSlowAgent(t)
	s := workerapi.NewStore(a.socket, "lxd")
	defer s.Close()
	var asked atomic.Int32
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GetConn: func(string) { asked.Add(1) }})
	var calls sync.WaitGroup
	for range 256 {
		calls.Go(func() {
			if _, _, err := s.List(ctx, "machine"); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all calls have begun", func() bool { return asked.Load() == 256 && a.calls.Load() >= workerapi.MaxCalls })
	close(a.release)
	calls.Wait()
	if n := a.conns.Load(); n != workerapi.MaxCalls {
		t.Errorf("%d connections, want %d", n, workerapi.MaxCalls)
	}
	bounds := parts[share(roleWorker)]
	if workerapi.MaxCalls+workerapi.MaxStreams > bounds.conns.perUID || workerapi.MaxStreams <= bounds.streams.perUID {
		t.Errorf("a worker uses %d and %d connections, within %+v", workerapi.MaxCalls, workerapi.MaxStreams, bounds)
	}
}

// Long preparations of images do not block short calls.
func TestImageCallsOfAWorkerLeaveRoomForItsOtherCalls(t *testing.T) {
	a := newSlowAgent(t)
	close(a.release)
	s := workerapi.NewStore(a.socket, "lxd")
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var images sync.WaitGroup
	defer images.Wait()
	defer cancel()
	for range 64 {
		images.Go(func() { _, _ = s.EnsureImage(ctx, "debian/12", nil) })
	}
	eventually(t, "the image calls use all their connections", func() bool { return a.streams.Load() >= workerapi.MaxStreams })
	short, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if _, _, err := s.List(short, "machine"); err != nil {
		t.Errorf("a call beside the image calls: %v", err)
	}
	if n := a.streams.Load(); n != workerapi.MaxStreams {
		t.Errorf("%d image calls at once, want %d", n, workerapi.MaxStreams)
	}
}
