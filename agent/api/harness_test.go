package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/hosttest"
)

// Ids that the host does not use.
const (
	adminGID  = 61001
	readerGID = 61002
	lxdUID    = 61011
	lxcGID    = 61021
	kvmUID    = 61012
	otherUID  = 61013
)

// bench is a server with its store and its host.
type bench struct {
	*Server
	store  *memory
	host   *standIn
	log    *syncBuffer
	socket string
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newBench returns a server that does not listen yet.
func newBench(t testing.TB, change ...func(*Options)) *bench {
	t.Helper()
	b := &bench{store: newMemory(), host: newStandIn(), log: &syncBuffer{}}
	o := Options{
		Backend: b.store, Service: b.host.service(), Gatherer: prometheus.NewRegistry(),
		Logger:  slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Version: "1.2.3", Namespace: "test", AdminGroup: "hostler-admin", ReadGroup: "hostler",
		LookupGroup: func(name string) (uint32, error) {
			gid, ok := map[string]uint32{"hostler-admin": adminGID, "hostler": readerGID}[name]
			if !ok {
				return 0, fault.New(fault.NotFound, "no group %s", name)
			}
			return gid, nil
		},
		Workers: func() Workers {
			return Workers{
				Users:  map[uint32]spec.ContainerType{lxdUID: spec.LXD, kvmUID: spec.KVM},
				Groups: map[uint32]spec.ContainerType{lxcGID: spec.LXC},
			}
		},
		Heartbeat: 20 * time.Millisecond,
	}
	for _, c := range change {
		c(&o)
	}
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	b.Server = s
	return b
}

// listen serves on a new socket and returns a client.
func (b *bench) listen(t testing.TB) *client.Client {
	t.Helper()
	dir := hosttest.SocketDir(t)
	b.socket = filepath.Join(dir, "run", "hostler.sock")
	l, err := Listen(slog.New(slog.DiscardHandler), b.socket, os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, l) }()
	c := client.New(b.socket)
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

// peer returns a caller as the kernel would report it.
func peer(uid, gid uint32, groups ...uint32) peerCredentials {
	return peerCredentials{PID: 4711, UID: uid, GID: gid, Groups: groups, Exe: "/usr/bin/test"}
}

// as makes a request as peer p, without a socket.
func (b *bench) as(p peerCredentials, method, target, contentType, body string) *httptest.ResponseRecorder {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, target, r)
	req.Host = "hostler"
	req.Header.Set(client.KeyHeader, rand.Text())
	return b.ask(p, req, contentType)
}

// ask makes a prepared request as peer p, without a socket.
func (b *bench) ask(p peerCredentials, req *http.Request, contentType string) *httptest.ResponseRecorder {
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	c := b.o.caller(p)
	// The context ends streams under test.
	ctx, cancel := context.WithTimeout(withCaller(req.Context(), c), 50*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, req.WithContext(ctx))
	return w
}

func (b *bench) asRoot(method, target, body string) *httptest.ResponseRecorder {
	return b.as(peer(0, 0), method, target, "application/json", body)
}

// machine puts a machine with an instance into the store.
func (b *bench) machine(name string, life state.Life, rec spec.MachineRecord, st spec.MachineStatus) {
	b.store.put(state.ID{Kind: spec.KindMachine, Name: name}, life, rec, st)
}

func running(name string) spec.MachineStatus {
	return spec.MachineStatus{State: spec.MachineRunning, Instance: &spec.InstanceInfo{Name: name}, Addresses: []string{"10.0.0.2"}}
}

func lxdMachine(declaration string) spec.MachineRecord {
	return spec.MachineRecord{Header: spec.Header{Declaration: declaration}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}}
}

// eventually waits for a condition; the deadline only ends broken tests.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatal("waited in vain: " + what)
		case <-tick.C:
		}
	}
}

// yaml returns a declaration with the named LXD machines.
func yaml(machines ...string) string {
	var s strings.Builder
	s.WriteString("version: 1\nmachines:\n")
	for _, m := range machines {
		s.WriteString("  " + m + ": {type: lxd, image: debian/12}\n")
	}
	return s.String()
}

func request(name, content string) client.ApplyRequest {
	return client.ApplyRequest{Documents: []client.Document{{Name: name, Content: content}}}
}

const folder = "/etc/hostler/conf.d/"

// files makes these files, by name, the whole contents of conf.d.
func (b *bench) files(t testing.TB, files map[string]string, change ...func(*declare.Folder)) declare.FolderAnswer {
	t.Helper()
	f := declare.Folder{Path: filepath.Clean(folder), Files: map[string]declare.File{}}
	for name, content := range files {
		f.Files[folder+name] = declare.File{Content: []byte(content)}
	}
	for _, c := range change {
		c(&f)
	}
	a, err := b.ApplyFolder(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// runs gives machines an instance.
func (b *bench) runs(t testing.TB, machines ...string) {
	t.Helper()
	for _, n := range machines {
		b.writeStatus(t, id(spec.KindMachine, n), running(n))
	}
}

func (b *bench) writeStatus(t testing.TB, at state.ID, status any) {
	t.Helper()
	if _, err := b.store.Write(t.Context(), state.Atomic, state.Write{ID: at, Revision: state.AnyRevision, Status: spec.Encode(status)}); err != nil {
		t.Fatal(err)
	}
}

// end removes a machine's record, like its provisioner.
func (b *bench) end(t testing.TB, machine string) {
	t.Helper()
	if _, err := b.store.Write(t.Context(), state.Atomic, state.Write{ID: id(spec.KindMachine, machine), Revision: state.AnyRevision, Delete: true}); err != nil {
		t.Fatal(err)
	}
}
