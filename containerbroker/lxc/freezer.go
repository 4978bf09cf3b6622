package lxc

import (
	"bytes"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/internal/pause"
)

// freezer is the freezer of a running instance's cgroup. The command socket sends
// states only to its state clients, and a watcher is none of them. On cgroup v2
// the kernel itself reports changes of cgroup.events. On v1 every client writes to
// freezer.state, which inotify reports.
type freezer struct {
	name, file string
	frozen     bool // of the last event
}

// watchFreezer watches the freezer of an instance that runs. The watch ends with
// the cgroup.
func (w *watcher) watchFreezer(name string) {
	controller, base := "freezer", "freezer.state"
	if w.d.unified() {
		controller, base = "", "cgroup.events"
	}
	dir, err := w.d.limitCgroup(w.ctx, name, controller)
	if err != nil {
		return // its end is noticed anyway
	}
	file := filepath.Join(dir, base)
	_ = control(w.file, func(fd int) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		wd, err := unix.InotifyAddWatch(fd, file, unix.IN_MODIFY)
		if err == nil {
			w.freezers[int32(wd)] = &freezer{name: name, file: file, frozen: isFrozen(file)}
		}
		return err
	})
}

// freezerChanged sends an event if the instance of a watch was frozen or thawed.
func (w *watcher) freezerChanged(wd int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.freezers[wd]
	if f == nil {
		return
	}
	if frozen := isFrozen(f.file); frozen != f.frozen {
		f.frozen = frozen
		w.wait.Go(func() { w.awaitFreezer(f, frozen) })
	}
}

// awaitFreezer sends an event when the monitor knows the new state. The tools of
// LXC inform the monitor after they changed the freezer.
func (w *watcher) awaitFreezer(f *freezer, frozen bool) {
	for deadline := time.Now().Add(w.d.opts.EndTimeout); time.Now().Before(deadline); {
		s, err := w.d.stateOf(w.ctx, f.name)
		if err != nil || (s.status() == containerbroker.StatusFrozen) == frozen {
			break
		}
		w.mu.Lock()
		stale := f.frozen != frozen
		w.mu.Unlock()
		if stale || pause.For(w.ctx, startLook) != nil {
			return
		}
	}
	w.emit(f.name, map[bool]string{true: "frozen", false: "thawed"}[frozen])
}

// isFrozen reads the state of a freezer. On cgroup v1 it is FREEZING until the
// last process is frozen.
func isFrozen(file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	return bytes.HasPrefix(text, []byte("FR")) || bytes.Contains(text, []byte("frozen 1\n"))
}
