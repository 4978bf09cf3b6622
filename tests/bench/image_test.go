//go:build integration

package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler/containerbroker/images"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/tests/harness"
)

// BenchmarkImage builds an image of Debian with hostler and a tar of the same
// packages with mmdebstrap alone, both through a proxy that counts the
// downloads. Hostler's time ends when the image is packed, scanned and kept.
func BenchmarkImage(b *testing.B) {
	d := &downloads{}
	proxy := serveProxy(b, d)
	runner := &recorder{}
	cache, err := images.Open(images.Options{Dir: b.TempDir(), Runner: runner, Mirrors: images.Mirrors{Proxy: proxy}})
	if err != nil {
		b.Fatal(err)
	}
	d.forget()
	var shares string
	build := took(func() { shares = image(b, cache, "debian/12") })
	first := d.count()
	alone := took(func() { runner.alone(b, filepath.Join(b.TempDir(), "root.tar"), proxy) })
	ratio("build of a debian/12 image / mmdebstrap of the same packages into a tar", []time.Duration{build}, []time.Duration{alone}, 1.1)
	fmt.Printf("        hostler's build: %s\n", shares)
	d.forget()
	again := took(func() { image(b, cache, "debian/12") })
	bound("packages that a second build of debian/12 downloads", float64(d.count()), 0, "packages",
		fmt.Sprintf("the first downloaded %d; the second took %.1f s", first, again.Seconds()))
}

// image builds an image and returns the duration of each phase.
func image(b *testing.B, cache *images.Cache, name string) (phases string) {
	b.Helper()
	var texts []string
	phase, since := "preparing", time.Now()
	next := func(message string) {
		if message != phase {
			texts = append(texts, fmt.Sprintf("%s %.1f s", phase, time.Since(since).Seconds()))
			phase, since = message, time.Now()
		}
	}
	if _, err := cache.Build(b.Context(), name, images.FormatLXD, func(message string, _ int) { next(message) }); err != nil {
		b.Fatal(err)
	}
	next("")
	return strings.Join(texts, ", ")
}

// recorder notes the last run of mmdebstrap.
type recorder struct {
	run.Host
	include, sources string
}

// Run implements run.Runner.
func (r *recorder) Run(ctx context.Context, c run.Command) (run.Result, error) {
	if slices.Contains(c.Args, paths.Mmdebstrap) {
		sources, err := io.ReadAll(c.Stdin)
		if err != nil {
			return run.Result{}, err
		}
		r.sources, c.Stdin = string(sources), strings.NewReader(string(sources))
		for _, a := range c.Args {
			if strings.HasPrefix(a, "--include=") {
				r.include = a
			}
		}
	}
	return r.Host.Run(ctx, c)
}

// alone runs mmdebstrap with the packages and sources of the last build, without
// hooks, into a tar.
func (r *recorder) alone(b *testing.B, tar, proxy string) {
	b.Helper()
	codename := strings.Fields(r.sources)[2]
	args := []string{
		"--mode=root", "--variant=minbase", r.include, "--aptopt=Acquire::Languages \"none\"",
		fmt.Sprintf("--aptopt=Acquire::http::Proxy %q", proxy), codename, tar,
	}
	for line := range strings.Lines(r.sources) {
		args = append(args, strings.TrimSpace(line))
	}
	harness.Run(b, paths.Mmdebstrap, args...)
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

// serveProxy runs an HTTP proxy until the benchmark ends and returns its address.
func serveProxy(b *testing.B, d *downloads) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { d.note(path.Base(r.In.URL.Path)) }}
	server := &http.Server{Handler: forward, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String()
}
