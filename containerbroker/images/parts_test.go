package images

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// pieces answers each request with at most n further bytes of a file, and
// breaks the connection.
func pieces(data []byte, n int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		from := 0
		w.Header().Set("ETag", `"same"`)
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
			w.Header().Set("Content-Length", fmt.Sprint(len(data)-from))
			w.WriteHeader(http.StatusPartialContent)
		} else {
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		}
		_, _ = w.Write(data[from:min(from+n, len(data))])
		panic(http.ErrAbortHandler)
	}
}

// partsOf returns the kept parts and their total size.
func partsOf(t *testing.T, dir string) (names []string, size int64) {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(dir, "parts"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		names = append(names, f.Name())
		size += fileSize(t, filepath.Join(dir, "parts", f.Name()))
	}
	return names, size
}

// A link that is too slow for an image within a call's attempts finishes it
// after some calls: each goes on where the former ended.
func TestSlowDownloadGoesOnInTheNextCall(t *testing.T) {
	m := newMirror(t)
	data, sum := bigImage(t)
	m.fault = pieces(data, 100<<10)
	c, dir := m.cache(t, func(o *Options) {
		// No attempt counts as progress.
		o.Downloads.Floor = 1 << 30
	})
	calls, held := 0, int64(0)
	for ; calls < 10; calls++ {
		_, err := c.Ensure(t.Context(), m.URL+"/x?token=secret#sha256="+sum, FormatLXD, nil)
		if err == nil {
			break
		}
		if fault.KindOf(err) != fault.Transient {
			t.Fatal(err)
		}
		names, size := partsOf(t, dir)
		if len(names) != 1 || strings.Contains(names[0], "secret") || size <= held {
			t.Fatalf("after call %d: parts %v of %d bytes", calls, names, size)
		}
		held = size
	}
	if calls == 0 || calls == 10 {
		t.Errorf("finished after %d failed calls", calls)
	}
	if names, _ := partsOf(t, dir); len(names) != 0 {
		t.Errorf("kept after the end: %v", names)
	}
	tidy(t, dir)
}

// A part survives the end of the caller, e.g. a restart of the agent, and goes
// on under a changed file only from its start.
func TestAbortedDownloadIsKept(t *testing.T) {
	m := newMirror(t)
	data, sum := bigImage(t)
	m.files["/x"] = data
	ctx, cancel := context.WithCancel(t.Context())
	m.fault = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("ETag", `"old"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)+1))
		_, _ = w.Write(make([]byte, 400<<10))
		_ = http.NewResponseController(w).Flush()
		time.AfterFunc(50*time.Millisecond, cancel)
		<-r.Context().Done()
		return true
	}
	c, dir := m.cache(t, nil)
	if _, err := c.Ensure(ctx, m.URL+"/x#sha256="+sum, FormatLXD, nil); err == nil {
		t.Fatal("it did not end")
	}
	if names, size := partsOf(t, dir); len(names) != 1 || size == 0 {
		t.Fatalf("parts %v of %d bytes", names, size)
	}
	m.mu.Lock()
	m.fault = nil
	m.mu.Unlock()
	again := open(t, func(o *Options) { o.Dir, o.HTTP = dir, m.Client() })
	if _, err := again.Ensure(t.Context(), m.URL+"/x#sha256="+sum, FormatLXD, nil); err != nil {
		t.Error(err)
	}
	seen := m.seen()
	if last := seen[len(seen)-1]; last == "/x " {
		t.Errorf("requests: %q", seen)
	}
	tidy(t, dir)
}

// Parts go when their space is needed, and when they are old. A download that
// the disk has no room for leaves no part.
// Attack: images
func TestPartsAreBounded(t *testing.T) {
	m := newMirror(t)
	data, sum := bigImage(t)
	m.files["/good"] = data
	var free func() int64
	var dir string
	c, _ := m.cache(t, func(o *Options) {
		free = onSmallDisk(t, o, 96)
		dir = o.Dir
	})
	stale := filepath.Join(dir, "parts", strings.Repeat("0", 32)+".x")
	for _, name := range []string{stale, filepath.Join(dir, "parts", strings.Repeat("1", 32)+".x")} {
		if err := os.WriteFile(name, make([]byte, 14<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-30 * 24 * time.Hour)
	if err := os.Chtimes(stale, old, old); err != nil {
		t.Fatal(err)
	}
	if free() > 70<<20 {
		t.Fatalf("%d MiB are free", free()>>20)
	}
	fill := filepath.Join(filepath.Dir(dir), "foreign")
	if err := os.WriteFile(fill, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Ensure(t.Context(), m.URL+"/good#sha256="+sum, FormatLXD, nil); err != nil {
		t.Errorf("with parts in the way: %v", err)
	}
	if names, _ := partsOf(t, dir); len(names) != 1 || strings.HasPrefix(names[0], "0") {
		t.Errorf("the oldest part goes alone: %v", names)
	}
	m.mu.Lock()
	m.fault = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("ETag", `"same"`)
		_, _ = w.Write(make([]byte, 64<<20))
		return true
	}
	m.mu.Unlock()
	if _, err := c.Ensure(t.Context(), m.URL+"/big#sha256="+strings.Repeat("0a", 32), FormatLXD, nil); fault.KindOf(err) != fault.Transient {
		t.Errorf("got %v", err)
	}
	if names, _ := partsOf(t, dir); len(names) != 0 {
		t.Errorf("a full disk keeps %v", names)
	}
	var s unix.Stat_t
	aged := filepath.Join(dir, "parts", strings.Repeat("2", 32)+".x")
	if err := os.WriteFile(aged, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(aged, old, old); err != nil {
		t.Fatal(err)
	}
	open(t, func(o *Options) { o.Dir = dir })
	if unix.Stat(aged, &s) == nil {
		t.Error("a month later the part is still kept")
	}
}

// The least speed is that of all downloads together, so a slow link that many
// images share is not given up.
func TestParallelDownloadsShareTheLeastSpeed(t *testing.T) {
	const many, floor = 8, 1600 << 10
	m := newMirror(t)
	data, sum := bigImage(t)
	var all sync.WaitGroup
	all.Add(many)
	m.fault = func(w http.ResponseWriter, r *http.Request) bool {
		all.Done()
		all.Wait()
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		for left := data; len(left) > 0 && r.Context().Err() == nil; {
			n := min(len(left), 64<<10) // 640 KiB/s each
			_, _ = w.Write(left[:n])
			_ = http.NewResponseController(w).Flush()
			left = left[n:]
			time.Sleep(100 * time.Millisecond)
		}
		return true
	}
	c, _ := m.cache(t, func(o *Options) {
		o.Downloads.Tries, o.Downloads.Floor, o.Downloads.Stall = 1, floor, time.Second
	})
	var callers sync.WaitGroup
	for n := range many {
		callers.Go(func() {
			// Formats and digests differ, so each is a download of its own.
			ref := fmt.Sprintf("%s/%d#sha256=%s", m.URL, n, sum)
			if n > 0 {
				ref = fmt.Sprintf("%s/%d#sha256=%064d", m.URL, n, n)
			}
			_, err := c.Ensure(t.Context(), ref, FormatLXD, nil)
			if n == 0 && err != nil || n > 0 && (err == nil || !strings.Contains(err.Error(), "another sha256")) {
				t.Errorf("download %d: %v", n, err)
			}
		})
	}
	callers.Wait()
}
