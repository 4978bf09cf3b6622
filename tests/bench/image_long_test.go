//go:build integration && long

package bench

import (
	"net"
	"net/http"
	"net/http/httputil"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler/containerbroker/images"
	"hostler/internal/run"
)

// TestASecondBuildDownloadsNoPackage builds an image twice through a proxy that
// counts the packages.
func TestASecondBuildDownloadsNoPackage(t *testing.T) {
	d := &downloads{}
	cache, err := images.Open(images.Options{Dir: t.TempDir(), Runner: run.Host{}, Mirrors: images.Mirrors{Proxy: serveProxy(t, d)}})
	if err != nil {
		t.Fatal(err)
	}
	d.forget()
	image(t, cache, "debian/12")
	if first := d.count(); first < 100 {
		t.Fatalf("the proxy saw %d packages of the first build", first)
	}
	d.forget()
	image(t, cache, "debian/12")
	if again := d.count(); again > 0 {
		t.Errorf("the second build downloaded %d packages", again)
	}
}

// downloads are the packages that a proxy passed on.
type downloads struct {
	mu   sync.Mutex
	each map[string]int
}

func (d *downloads) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.each = map[string]int{}
}

func (d *downloads) note(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.each != nil && strings.HasSuffix(name, ".deb") {
		d.each[name]++
	}
}

// count returns how many packages were downloaded since forget.
func (d *downloads) count() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, times := range d.each {
		n += times
	}
	return n
}

// serveProxy runs an HTTP proxy until the test ends and returns its address.
func serveProxy(t testing.TB, d *downloads) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { d.note(path.Base(r.In.URL.Path)) }}
	server := &http.Server{Handler: forward, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String()
}
