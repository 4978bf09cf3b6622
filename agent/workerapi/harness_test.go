package workerapi

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/state/statetest"
	"hostler/internal/hosttest"
)

// bench serves the calls of workers over a real store. The limits and rights of
// callers are the server's, in package api.
type bench struct{ socket string }

// workerBench returns a bench that listens, and its store.
func workerBench(t testing.TB) (*bench, *state.Local) {
	t.Helper()
	l, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t)})
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
	b := &bench{socket: filepath.Join(hosttest.SocketDir(t), "hostler.sock")}
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

func machineID(name string) state.ID { return id(spec.KindMachine, name) }

func id(kind, name string) state.ID { return state.ID{Kind: kind, Name: name} }

// declareMachine creates a machine of a type.
func declareMachine(t testing.TB, l state.Store, name string, ct spec.ContainerType, change ...func(*spec.MachineRecord)) state.Object {
	t.Helper()
	record := spec.MachineRecord{Header: spec.Header{Declaration: "d"}, Machine: spec.Machine{Type: ct, Image: "debian/12"}}
	for _, c := range change {
		c(&record)
	}
	return statetest.Write(t, l, state.Write{ID: machineID(name), Spec: spec.Encode(record)})
}

func setStatus(t testing.TB, l state.Store, name string, status spec.MachineStatus) {
	t.Helper()
	statetest.Write(t, l, state.Write{ID: machineID(name), Revision: state.AnyRevision, Status: spec.Encode(status)})
}
