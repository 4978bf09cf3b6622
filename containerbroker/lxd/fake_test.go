package lxd

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/hosttest"
)

// fakeLXD answers on a unix socket with routes that a test sets.
type fakeLXD struct {
	socket string
	mux    *http.ServeMux

	mu     sync.Mutex
	counts map[string]int
}

func newFakeLXD(t *testing.T) *fakeLXD {
	t.Helper()
	dir := hosttest.SocketDir(t)
	f := &fakeLXD{socket: filepath.Join(dir, "socket"), mux: http.NewServeMux(), counts: map[string]int{}}
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.counts[r.Method]++
		f.mu.Unlock()
		f.mux.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return f
}

func (f *fakeLXD) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[method]
}

// answer makes a route answer with metadata.
func (f *fakeLXD) answer(route string, metadata any) {
	f.mux.HandleFunc(route, func(w http.ResponseWriter, _ *http.Request) { reply(w, "sync", metadata) })
}

func (f *fakeLXD) driver(change func(*Options)) *Driver {
	opts := Options{Socket: f.socket, Namespace: "hostler", RequestTimeout: 10 * time.Second, RetryDelay: time.Millisecond}
	if change != nil {
		change(&opts)
	}
	return New(opts)
}

func reply(w http.ResponseWriter, kind string, metadata any) {
	content, err := json.Marshal(metadata)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(api.Response{Type: api.ResponseType(kind), Metadata: content})
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"type": "error", "error_code": %d, "error": %q}`, status, message)
}

func testMachine() containerbroker.Machine {
	return containerbroker.Machine{
		Name: "web", ImageID: "abc",
		Stamp: containerbroker.Stamp{Namespace: "hostler", UID: "u", Token: "t", Record: "{}"},
	}
}

// stamped returns the test machine's instance as LXD shows it.
func stamped(status api.StatusCode) api.Instance {
	config := stampConfig(testMachine().Stamp)
	config["volatile.apply_template"] = "create"
	config[keyBaseImage] = "abc"
	return api.Instance{Name: "web", StatusCode: status, Config: config}
}

func stampConfig(s containerbroker.Stamp) map[string]string {
	config := map[string]string{}
	writeStamp(config, s)
	return config
}
