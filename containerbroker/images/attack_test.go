package images

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/run"
)

// onSmallDisk gives the cache its own filesystem of that many MiB, and returns
// a function for its free bytes.
func onSmallDisk(t *testing.T, o *Options, mib int) (free func() int64) {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("test", dir, "tmpfs", 0, "size="+strconv.Itoa(mib)+"m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	o.Dir = filepath.Join(dir, "images")
	return func() int64 {
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err != nil {
			t.Error(err)
		}
		return int64(s.Bavail) * s.Bsize
	}
}

// endless sends zeros until the client disconnects, with a pause after each
// piece.
func endless(sent *atomic.Int64, piece int, pause time.Duration) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		zeros := make([]byte, piece)
		for r.Context().Err() == nil && sent.Load() < 512<<20 {
			n, err := w.Write(zeros)
			sent.Add(int64(n))
			if err != nil {
				return true
			}
			if pause > 0 {
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(pause):
				}
			}
		}
		panic(http.ErrAbortHandler)
	}
}

// A server that sends no size cannot use up the reserve of the filesystem; it
// is asked once, and the received bytes are removed.
// Attack: images
func TestEndlessImageLeavesTheReserve(t *testing.T) {
	m := newMirror(t)
	var sent atomic.Int64
	var free func() int64
	var least atomic.Int64
	c, _ := m.cache(t, func(o *Options) {
		free = onSmallDisk(t, o, 128)
	})
	least.Store(free())
	send := endless(&sent, 1<<20, 0)
	m.fault = func(w http.ResponseWriter, r *http.Request) bool { return send(measured{w, free, &least}, r) }
	_, err := c.Ensure(t.Context(), m.URL+"/x#sha256="+strings.Repeat("0a", 32), FormatLXD, nil)
	if fault.KindOf(err) != fault.Transient || !strings.Contains(err.Error(), "MiB are free") {
		t.Errorf("got %v (%s)", err, fault.KindOf(err))
	}
	if least.Load() < 60<<20 || sent.Load() == 0 {
		t.Errorf("after %d bytes %d were free", sent.Load(), least.Load())
	}
	if n := len(m.seen()); n != 1 {
		t.Errorf("%d requests", n)
	}
	if free() < 127<<20 {
		t.Errorf("%d bytes are free in the end", free())
	}
}

// measured checks the free space after each write.
type measured struct {
	http.ResponseWriter
	free  func() int64
	least *atomic.Int64
}

func (m measured) Write(p []byte) (int, error) {
	n, err := m.ResponseWriter.Write(p)
	m.least.Store(min(m.least.Load(), m.free()))
	return n, err
}

// If another process fills the filesystem meanwhile, the download ends, even if
// there was enough space at its beginning.
// Attack: images
func TestDownloadEndsWhenTheDiskIsFull(t *testing.T) {
	m := newMirror(t)
	var sent atomic.Int64
	var free func() int64
	var disk string
	c, _ := m.cache(t, func(o *Options) {
		free = onSmallDisk(t, o, 160)
		disk = filepath.Dir(o.Dir)
	})
	send := endless(&sent, 256<<10, time.Millisecond)
	m.fault = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", strconv.Itoa(90<<20))
		_, _ = w.Write(make([]byte, 1<<20))
		f, err := os.Create(filepath.Join(disk, "foreign"))
		if err != nil {
			t.Error(err)
		}
		for n := 0; n < 200 && err == nil; n++ {
			_, err = f.Write(make([]byte, 1<<20))
		}
		_ = f.Close()
		return send(w, r)
	}
	_, err := c.Ensure(t.Context(), m.URL+"/x#sha256="+strings.Repeat("0a", 32), FormatLXD, nil)
	if fault.KindOf(err) != fault.Transient || !strings.Contains(err.Error(), "cannot keep the image") {
		t.Errorf("got %v (%s)", err, fault.KindOf(err))
	}
	if n := len(m.seen()); n != 1 {
		t.Errorf("%d requests", n)
	}
	if err := os.Remove(filepath.Join(disk, "foreign")); err != nil {
		t.Fatal(err)
	}
	if free() < 159<<20 {
		t.Errorf("%d bytes are free in the end", free())
	}
}

// A server that is slower than the floor, or breaks off after a few bytes each
// time, is given up after as many attempts as a server that sends nothing. A
// server that never ends is given up at the limit, at once.
// Attack: images
func TestSlowServersAreGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		piece    int
		pause    time.Duration
		limit    time.Duration
		breaks   bool
		why      string
		requests int
	}{
		"a drip":                {16, 10 * time.Millisecond, time.Minute, false, "slower than 1024 KiB/s", 3},
		"breaks, each further":  {16, 0, time.Minute, true, "", 3},
		"longer than the limit": {64 << 10, 5 * time.Millisecond, 700 * time.Millisecond, false, "longer than 700ms", 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			var sent atomic.Int64
			send := endless(&sent, c.piece, c.pause)
			m.fault = func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("ETag", `"same"`)
				if from, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
					from = strings.TrimSuffix(from, "-")
					w.Header().Set("Content-Range", "bytes "+from+"-/*")
					w.WriteHeader(http.StatusPartialContent)
				}
				if c.breaks {
					_, _ = w.Write(make([]byte, c.piece))
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
				return send(w, r)
			}
			cache, dir := m.cache(t, func(o *Options) {
				o.Downloads.Floor, o.Downloads.Limit, o.Downloads.Stall = 1<<20, c.limit, time.Second
			})
			begun := time.Now()
			_, err := cache.Ensure(t.Context(), m.URL+"/x#sha256="+strings.Repeat("0a", 32), FormatLXD, nil)
			if fault.KindOf(err) != fault.Transient || !strings.Contains(err.Error(), c.why) {
				t.Errorf("got %v (%s)", err, fault.KindOf(err))
			}
			if n := len(m.seen()); n != c.requests || time.Since(begun) > 20*time.Second {
				t.Errorf("%d requests in %s", n, time.Since(begun))
			}
			tidy(t, dir)
		})
	}
}

// An index is bounded during the download, before it fills the disk.
// Attack: images
func TestEndlessIndexIsBounded(t *testing.T) {
	m := newMirror(t)
	var sent atomic.Int64
	m.fault = endless(&sent, 1<<20, 0)
	c, dir := m.cache(t, func(o *Options) {
		o.Sources, o.Servers = []string{"local", "simplestreams:test"}, map[string]string{"test": m.URL + "/base"}
	})
	_, err := c.Ensure(t.Context(), "debian/12", FormatLXD, nil)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "more than 33554432 bytes") {
		t.Errorf("got %v (%s)", err, fault.KindOf(err))
	}
	if sent.Load() > 64<<20 || len(m.seen()) != 1 {
		t.Errorf("%d bytes in %d requests", sent.Load(), len(m.seen()))
	}
	tidy(t, dir)
}

// A cache with its own scanner accepts and refuses images by the scanner's
// answer.
// Attack: images
func TestImagesAreReadByAProcessOfTheirOwn(t *testing.T) {
	path, sum := imageFile(t)
	evil, evilSum := imageFile(t, file{name: "backup.yaml", body: "x"})
	c := open(t, func(o *Options) { o.Scan = Isolated(run.Host{}, "/proc/self/exe", "alone") })
	if a, err := c.Ensure(t.Context(), "file:"+path+"#sha256="+sum, FormatLXD, nil); err != nil || a.Digest != sum {
		t.Errorf("got %+v, %v", a, err)
	}
	_, err := c.Ensure(t.Context(), "file:"+evil+"#sha256="+evilSum, FormatLXD, nil)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "backup.yaml") {
		t.Errorf("got %v (%s)", err, fault.KindOf(err))
	}
}
