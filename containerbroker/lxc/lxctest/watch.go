package lxctest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// watch counts accesses to the folder of instances by inotify: every listing
// opens the folder, and every change of an instance changes an entry of it, or a
// file of an instance.
type watch struct {
	t testing.TB

	mu       sync.Mutex
	fd       int
	path     string
	whole    int32 // the watch of the folder itself
	listings int
	changes  []string
}

// changing are the changes of a folder's entries. Closing a file that was written
// is the end of a change of it.
const changing = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE

func newWatch(t testing.TB, path string) *watch {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{t: t, fd: fd, path: path}
	w.forget()
	return w
}

func (w *watch) close() { _ = unix.Close(w.fd) }

// forget has the counts begin at 0, and watches the instances that are there.
func (w *watch) forget() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drain(false)
	w.listings, w.changes = 0, nil
	wd, err := unix.InotifyAddWatch(w.fd, w.path, unix.IN_OPEN|changing)
	if err != nil {
		w.t.Fatal(err)
	}
	w.whole = int32(wd)
	own, _ := filepath.Glob(filepath.Join(w.path, ".*", "making"))
	instances, _ := filepath.Glob(filepath.Join(w.path, "[^.]*"))
	for _, dir := range append(own, instances...) {
		if _, err := unix.InotifyAddWatch(w.fd, dir, changing); err != nil && !errors.Is(err, unix.ENOENT) {
			w.t.Fatal(err)
		}
	}
	w.drain(false) // the glob opened the folder
}

// drain reads the events that are there. The test's own are not counted.
func (w *watch) drain(count bool) {
	w.t.Helper()
	buffer := make([]byte, 64<<10)
	for {
		n, err := unix.Read(w.fd, buffer)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return
		}
		if err != nil {
			w.t.Fatal(err)
		}
		for at := 0; count && at < n; {
			wd, mask := int32(binary.NativeEndian.Uint32(buffer[at:])), binary.NativeEndian.Uint32(buffer[at+4:])
			end := at + unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buffer[at+12:]))
			name := strings.TrimRight(string(buffer[at+unix.SizeofInotifyEvent:end]), "\x00")
			at = end
			switch {
			case mask&unix.IN_OPEN != 0 && name == "" && wd == w.whole:
				w.listings++
			case mask&changing != 0 && !strings.HasPrefix(name, "console.log"): // the guest writes this
				w.changes = append(w.changes, name)
			}
		}
	}
}

// Forget has Listings and Mutations count from 0.
func (h *Host) Forget() {
	h.t.Helper()
	h.watch.forget()
}

// Listings is how often the folder of instances was read.
func (h *Host) Listings() int {
	h.watch.mu.Lock()
	defer h.watch.mu.Unlock()
	h.watch.drain(true)
	return h.watch.listings
}

// Mutations are the changes of instances that the test did not make.
func (h *Host) Mutations() []string {
	h.watch.mu.Lock()
	defer h.watch.mu.Unlock()
	h.watch.drain(true)
	return h.watch.changes
}

// quietly makes changes that Mutations does not count.
func (h *Host) quietly(change func()) {
	h.t.Helper()
	h.watch.mu.Lock()
	defer h.watch.mu.Unlock()
	h.watch.drain(true)
	change()
	h.watch.drain(false)
}

// CoverSockets has a process of the host find a text in place of the kernel's table
// of unix sockets, or with "" the table again. The whole folder net is covered: the
// kernel drops mounts on a file in it at the next look.
func (h *Host) CoverSockets(pid int, text string) {
	h.t.Helper()
	net := fmt.Sprintf("/proc/%d/net", pid)
	_, _ = h.Try("umount", net)
	if text == "" {
		return
	}
	cover := filepath.Join(h.dir, "net")
	h.must(os.MkdirAll(cover, 0o755))
	h.must(os.WriteFile(filepath.Join(cover, "unix"), []byte(text), 0o600))
	h.Run("mount", "--bind", cover, net)
}

// Touch writes the note of an instance anew, which the agent takes for a change.
func (h *Host) Touch(name string) {
	h.t.Helper()
	h.quietly(func() {
		text, err := os.ReadFile(h.at(name, "hostler.json"))
		h.must(err)
		h.must(os.WriteFile(h.at(name, ".new"), text, 0o600))
		h.must(os.Rename(h.at(name, ".new"), h.at(name, "hostler.json")))
	})
}

func inode(info os.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }
