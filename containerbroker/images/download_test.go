package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hostler/internal/fault"
)

// mirror is an https server with files and faults.
type mirror struct {
	*httptest.Server
	mu       sync.Mutex
	files    map[string][]byte
	fault    func(w http.ResponseWriter, r *http.Request) bool // true: answered
	requests []string                                          // "PATH RANGE"
}

func newMirror(t *testing.T) *mirror {
	m := &mirror{files: map[string][]byte{}}
	m.Server = httptest.NewTLSServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	data, ok := m.files[r.URL.Path]
	m.requests = append(m.requests, r.URL.Path+" "+r.Header.Get("Range"))
	broken := m.fault
	m.mu.Unlock()
	if broken != nil && broken(w, r) {
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(data)
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:4])+`"`)
	http.ServeContent(w, r, "x", time.Time{}, strings.NewReader(string(data)))
}

func (m *mirror) seen() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.requests...)
}

func (m *mirror) cache(t *testing.T, change func(*Options)) (*Cache, string) {
	dir := filepath.Join(t.TempDir(), "images")
	return open(t, func(o *Options) {
		o.Dir, o.HTTP = dir, m.Client()
		o.Downloads = Downloads{Tries: 3, Delay: time.Millisecond, Stall: time.Minute} // a busy test machine stalls, too
		if change != nil {
			change(o)
		}
	}), dir
}

// bigImage is a valid image of some size that does not compress.
func bigImage(t *testing.T) (data []byte, sum string) {
	noise := make([]byte, 0, 1<<20)
	for i := 0; len(noise) < 1<<20; i++ {
		h := sha256.Sum256([]byte(strconv.Itoa(i)))
		noise = append(noise, h[:]...)
	}
	data = gz(t, pack(t, with(file{name: "rootfs/noise", body: string(noise)})))
	h := sha256.Sum256(data)
	return data, hex.EncodeToString(h[:])
}

func TestDownload(t *testing.T) {
	m := newMirror(t)
	data, sum := bigImage(t)
	m.files["/image.tar.gz"] = data
	c, dir := m.cache(t, nil)
	var last int
	a, err := c.Ensure(t.Context(), m.URL+"/image.tar.gz#sha256="+sum, FormatLXD, func(message string, percent int) {
		if strings.HasPrefix(message, "downloading") {
			last = percent
		}
	})
	if err != nil || a.Digest != sum || a.Size != int64(len(data)) {
		t.Fatalf("got %+v, %v", a, err)
	}
	if last != 100 {
		t.Errorf("the last percentage was %d", last)
	}
	tidy(t, dir)
	// The same content at another address is not downloaded again.
	if _, err := c.Ensure(t.Context(), m.URL+"/elsewhere#sha256="+sum, FormatLXD, nil); err != nil || len(m.seen()) != 1 {
		t.Errorf("got %v after %v", err, m.seen())
	}
}

// cutAfter breaks the connection after n bytes of a body.
func cutAfter(data []byte, n int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") != "" {
			return false
		}
		sum := sha256.Sum256(data)
		w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:4])+`"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data[:n])
		panic(http.ErrAbortHandler)
	}
}

func TestBrokenDownloadIsResumed(t *testing.T) {
	m := newMirror(t)
	data, sum := bigImage(t)
	m.files["/x"] = data
	m.fault = cutAfter(data, 400_000)
	c, dir := m.cache(t, nil)
	if _, err := c.Ensure(t.Context(), m.URL+"/x#sha256="+sum, FormatLXD, nil); err != nil {
		t.Fatal(err)
	}
	seen := m.seen()
	if len(seen) != 2 || !strings.HasPrefix(seen[1], "/x bytes=") || seen[1] == "/x bytes=0-" {
		t.Errorf("requests: %q", seen)
	}
	tidy(t, dir)
}

// If the file has changed, If-Range makes the server send the whole file.
func TestChangedDownloadStartsOver(t *testing.T) {
	m := newMirror(t)
	data, sum := bigImage(t)
	old := append([]byte("old"), data...)
	m.files["/x"] = data
	m.fault = cutAfter(old, 400_000)
	c, _ := m.cache(t, nil)
	if _, err := c.Ensure(t.Context(), m.URL+"/x#sha256="+sum, FormatLXD, nil); err != nil {
		t.Fatal(err)
	}
}

// A server that ignores If-Range, e.g. a cache, may answer with the rest of
// another file. The download then starts over instead of mixing the two.
func TestPartOfAnotherVersionStartsOver(t *testing.T) {
	data, sum := bigImage(t)
	old := bytes.Repeat([]byte{1}, len(data))
	const dated, redated = "Mon, 02 Jan 2006 15:04:05 GMT", "Tue, 03 Jan 2006 15:04:05 GMT"
	for name, c := range map[string]struct{ first, rest http.Header }{
		"another ETag":      {http.Header{"Etag": {`"old"`}}, http.Header{"Etag": {`"new"`}}},
		"a weak ETag":       {http.Header{"Etag": {`"old"`}}, http.Header{"Etag": {`W/"new"`}}},
		"another date":      {http.Header{"Last-Modified": {dated}}, http.Header{"Last-Modified": {redated}}},
		"an ETag and dates": {http.Header{"Last-Modified": {dated}}, http.Header{"Etag": {`"new"`}, "Last-Modified": {redated}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			m.files["/x"] = data
			m.fault = answers(
				cutAfterWith(old, 400_000, c.first),
				func(w http.ResponseWriter, r *http.Request) bool {
					maps.Copy(w.Header(), c.rest)
					r.Header.Del("If-Range")
					http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(data))
					return true
				},
			)
			cache, dir := m.cache(t, nil)
			if _, err := cache.Ensure(t.Context(), m.URL+"/x#sha256="+sum, FormatLXD, nil); err != nil {
				t.Error(err)
			}
			if seen := m.seen(); len(seen) != 3 || !strings.HasPrefix(seen[1], "/x bytes=") || seen[2] != "/x " {
				t.Errorf("requests: %q", seen)
			}
			tidy(t, dir)
		})
	}
}

// A part without a validator belongs to the file that the request named, and
// the next part is asked for with the same validator.
func TestPartWithoutAVersionIsTaken(t *testing.T) {
	m := newMirror(t)
	data, sum := bigImage(t)
	var asked []string
	rest := func(n int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			from := 0
			_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
			m.mu.Lock()
			asked = append(asked, r.Header.Get("If-Range"))
			m.mu.Unlock()
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
			w.Header().Set("Content-Length", strconv.Itoa(len(data)-from))
			w.WriteHeader(http.StatusPartialContent)
			if _, _ = w.Write(data[from:min(from+n, len(data))]); from+n < len(data) {
				panic(http.ErrAbortHandler)
			}
			return true
		}
	}
	m.fault = answers(cutAfterWith(data, 400_000, http.Header{"Etag": {`"same"`}}), rest(300_000), rest(len(data)))
	cache, _ := m.cache(t, nil)
	if _, err := cache.Ensure(t.Context(), m.URL+"/x#sha256="+sum, FormatLXD, nil); err != nil {
		t.Error(err)
	}
	if !slices.Equal(asked, []string{`"same"`, `"same"`}) {
		t.Errorf("asked with %q", asked)
	}
}

// A server that has two versions by turns does not keep a download going for
// ever.
func TestDownloadEndsWhenVersionsAlternate(t *testing.T) {
	m := newMirror(t)
	data, sum := bigImage(t)
	m.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") == "" {
			return cutAfterWith(data, 800_000, http.Header{"Etag": {`"old"`}})(w, r)
		}
		w.Header().Set("ETag", `"new"`)
		r.Header.Del("If-Range")
		http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(data))
		return true
	}
	// Each first part alone is large enough to count as progress.
	cache, _ := m.cache(t, func(o *Options) { o.Downloads.Floor = 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := cache.Ensure(ctx, m.URL+"/x#sha256="+sum, FormatLXD, nil)
	if fault.KindOf(err) != fault.Transient || ctx.Err() != nil {
		t.Errorf("got %v", err)
	}
	if seen := m.seen(); len(seen) > 8 {
		t.Errorf("%d requests", len(seen))
	}
}

// answers gives each request the next answer, and later requests the file.
func answers(list ...func(http.ResponseWriter, *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	var n atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) bool {
		i := int(n.Add(1)) - 1
		return i < len(list) && list[i](w, r)
	}
}

// cutAfterWith breaks the connection after n bytes of a body with the headers.
func cutAfterWith(data []byte, n int, header http.Header) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		maps.Copy(w.Header(), header)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data[:n])
		panic(http.ErrAbortHandler)
	}
}

// Attack: images
func TestBadDownloads(t *testing.T) {
	data, sum := bigImage(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for name, c := range map[string]struct {
		fault    func(http.ResponseWriter, *http.Request) bool
		kind     fault.Kind
		why      string
		requests int
	}{
		"wrong content": {func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte("something else"))
			return true
		}, fault.Invalid, "the file has another sha256", 1},
		"absent": {func(w http.ResponseWriter, r *http.Request) bool { http.NotFound(w, r); return true }, fault.NotFound, "no such file", 1},
		"failing server": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}, fault.Transient, "502", 3},
		"stall": {func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", "1000000")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}, fault.Transient, "no data arrived for", 3},
		"short": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", "1000")
			panic(http.ErrAbortHandler)
		}, fault.Transient, "", 3},
		"too large": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", strconv.FormatInt(maxImageSize+1, 10))
			return true
		}, fault.Invalid, "more than 8589934592 bytes", 1},
		"redirect to http": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, plain.URL+"/x", http.StatusFound)
			return true
		}, fault.Invalid, "not https", 1},
		"redirects for ever": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
			return true
		}, fault.Invalid, "more than 5 times", 6},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			m.files["/x"], m.fault = data, c.fault
			cache, dir := m.cache(t, func(o *Options) {
				if name == "stall" {
					o.Downloads.Stall = 500 * time.Millisecond // a TLS handshake on a busy machine counts too
				}
			})
			_, err := cache.Ensure(t.Context(), m.URL+"/x?token=secret#sha256="+sum, FormatLXD, nil)
			if fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.why) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v (%s)", err, fault.KindOf(err))
			}
			if n := len(m.seen()); n != c.requests {
				t.Errorf("%d requests: %q", n, m.seen())
			}
			tidy(t, dir)
		})
	}
}

// stream puts an image on a simplestreams server.
func (m *mirror) stream(t *testing.T, change func(product string) string) {
	t.Helper()
	meta := pack(t, good()[:3])
	rootfs := squash{}.bytes(goodRoot())
	sum := func(parts ...[]byte) string {
		h := sha256.New()
		for _, p := range parts {
			h.Write(p)
		}
		return hex.EncodeToString(h.Sum(nil))
	}
	item := fmt.Sprintf(`{"items": {
		"lxd.tar.xz": {"ftype": "lxd.tar.xz", "path": "images/lxd.tar.xz", "size": %d, "sha256": %q, "combined_squashfs_sha256": %q},
		"root.squashfs": {"ftype": "squashfs", "path": "images/root.squashfs", "size": %d, "sha256": %q}}}`,
		len(meta), sum(meta), sum(meta, rootfs), len(rootfs), sum(rootfs))
	products := change(fmt.Sprintf(`{"format": "products:1.0", "products": {
		"a": {"aliases": "debian/12,debian/bookworm", "arch": "amd64", "versions": {"20260102": %s, "20250101": {"items": {}}}},
		"b": {"aliases": "debian/12", "arch": "arm64", "versions": {"20270101": %s}}}}`, item, item))
	m.files["/base/streams/v1/index.json"] = []byte(`{"format": "index:1.0", "index": {"images": {"datatype": "image-downloads", "path": "streams/v1/images.json"}}}`)
	m.files["/base/streams/v1/images.json"] = []byte(products)
	m.files["/base/images/lxd.tar.xz"], m.files["/base/images/root.squashfs"] = meta, rootfs
}

func TestSimplestreams(t *testing.T) {
	same := func(s string) string { return s }
	for name, c := range map[string]struct {
		change func(string) string
		ref    string
		kind   fault.Kind
		why    string
	}{
		"by name":       {same, "debian/12", "", ""},
		"written out":   {same, "simplestreams:test/debian/bookworm", "", ""},
		"absent":        {same, "debian/99", fault.NotFound, "simplestreams:test has no image debian/99 for amd64"},
		"wrong sum":     {func(s string) string { return strings.ReplaceAll(s, `"sha256": "`, `"sha256": "0`) }, "debian/12", fault.NotFound, ""},
		"changed sum":   {func(s string) string { return strings.Replace(s, `"sha256": "`, `"sha256": "`+digest+`", "old": "`, 2) }, "debian/12", fault.Transient, "differs from the server's index"},
		"path upwards":  {func(s string) string { return strings.ReplaceAll(s, "images/lxd", "../../lxd") }, "debian/12", fault.Invalid, "impossible path"},
		"other host":    {func(s string) string { return strings.ReplaceAll(s, "images/lxd", "https://h/lxd") }, "debian/12", fault.Invalid, "impossible path"},
		"huge":          {func(s string) string { return strings.ReplaceAll(s, `"size": `, `"size": 9999999`) }, "debian/12", fault.Invalid, "claims"},
		"not JSON":      {func(string) string { return "<html>" }, "debian/12", fault.Transient, "cannot read"},
		"no squashfs":   {func(s string) string { return strings.ReplaceAll(s, `"squashfs"`, `"disk"`) }, "debian/12", fault.NotFound, ""},
		"no such arch":  {func(s string) string { return strings.ReplaceAll(s, "amd64", "s390x") }, "debian/12", fault.NotFound, ""},
		"combined only": {func(s string) string { return strings.ReplaceAll(s, "combined_squashfs", "combined") }, "debian/12", fault.NotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			m.stream(t, c.change)
			cache, dir := m.cache(t, func(o *Options) {
				o.Sources, o.Servers = []string{"local", "simplestreams:test"}, map[string]string{"test": m.URL + "/base"}
			})
			a, err := cache.Ensure(t.Context(), c.ref, FormatLXD, nil)
			if fault.KindOf(err) != c.kind || err != nil && !strings.Contains(err.Error(), c.why) {
				t.Errorf("got %v (%s)", err, fault.KindOf(err))
			}
			if err == nil && (a.Rootfs == "" || a.Size != fileSize(t, a.Path)+fileSize(t, a.Rootfs)) {
				t.Errorf("got %+v", a)
			}
			tidy(t, dir)
		})
	}
}

// Sources are asked in order; a failing source does not hide the next.
func TestSourcesAreAskedInOrder(t *testing.T) {
	m := newMirror(t)
	m.stream(t, func(s string) string { return s })
	w := newWorkshop()
	w.broken.Store(true)
	both := func(o *Options) {
		o.Runner, o.Sources = w, []string{"local", "build", "simplestreams:test"}
		o.Servers = map[string]string{"test": m.URL + "/base"}
	}
	c, dir := m.cache(t, both)
	a, err := c.Ensure(t.Context(), "debian/12", FormatLXD, nil)
	if err != nil || w.builds.Load() != 1 || a.Rootfs == "" {
		t.Errorf("got %+v, %v after %d builds", a, err, w.builds.Load())
	}
	_, err = c.Ensure(t.Context(), "debian/11", FormatLXD, nil)
	if fault.KindOf(err) != fault.Transient || !strings.Contains(err.Error(), "build: ") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "blobs")); err != nil {
		t.Error(err)
	}
}
