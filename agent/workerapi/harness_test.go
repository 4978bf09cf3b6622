package workerapi

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// bench serves the calls of workers over a real store. The limits and rights of
// callers are the server's, in package api.
type bench struct{ socket string }

// workerBench returns a bench that listens, and its store.
func workerBench(t testing.TB) (*bench, *state.Local) {
	t.Helper()
	l, _, err := state.Open(t.Context(), state.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	stop, stopNow := context.WithCancel(context.Background())
	h := NewHandlers(Options{
		Backend: l, Streams: raw.Streams{Heartbeat: 20 * time.Millisecond, Stop: stop},
		Ensure: func(context.Context, spec.ContainerType, string, func(client.Progress)) (string, error) {
			return "fingerprint", nil
		},
	})
	mux := http.NewServeMux()
	for _, rt := range h.Routes() {
		mux.HandleFunc(rt.Method+" "+rt.Path, rt.Handle)
	}
	b := &bench{socket: filepath.Join(shortDir(t), "hostler.sock")}
	listener, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: mux}
	go func() { _ = srv.Serve(listener) }()
	t.Cleanup(func() {
		stopNow()
		_ = srv.Close()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, l
}

func (b *bench) worker(t testing.TB, containerType string) *Store {
	t.Helper()
	s := NewStore(b.socket, containerType)
	t.Cleanup(s.Close)
	return s
}

// shortDir returns a directory with a short path: a socket's path has at most
// 107 bytes.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api") //nolint:usetesting // its path holds the test's whole name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func wantKind(t testing.TB, err error, kind fault.Kind, words ...string) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Fatalf("got error %v of kind %q, want kind %q", err, fault.KindOf(err), kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func machineID(name string) state.ID { return id(spec.KindMachine, name) }

func id(kind, name string) state.ID { return state.ID{Kind: kind, Name: name} }

// declareMachine creates a machine of a type.
func declareMachine(t testing.TB, l state.Store, name string, ct spec.ContainerType, change ...func(*spec.MachineRecord)) state.Object {
	t.Helper()
	record := spec.MachineRecord{Declaration: "d", Machine: spec.Machine{Type: ct, Image: "debian/12"}}
	for _, c := range change {
		c(&record)
	}
	return mustWrite(t, l, state.Write{ID: machineID(name), Spec: spec.Encode(record)})
}

func mustWrite(t testing.TB, l state.Store, w state.Write) state.Object {
	t.Helper()
	results, err := l.Write(t.Context(), state.Atomic, w)
	if err != nil {
		t.Fatal(err)
	}
	return results[0].Object
}

func setStatus(t testing.TB, l state.Store, name string, status spec.MachineStatus) {
	t.Helper()
	mustWrite(t, l, state.Write{ID: machineID(name), Revision: state.AnyRevision, Status: spec.Encode(status)})
}
