package lxc

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/paths"
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
	file, err := w.d.freezerOf(w.ctx, name)
	if err != nil {
		return // its end is noticed anyway
	}
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

const freezerV1 = "freezer.state" // of cgroup v1

// freezerOf returns the file with the state of a running instance's freezer.
func (d *Driver) freezerOf(ctx context.Context, name string) (string, error) {
	controller, base := "freezer", freezerV1
	if d.unified() {
		controller, base = "", "cgroup.events"
	}
	dir, err := d.limitCgroup(ctx, name, controller)
	return filepath.Join(dir, base), err
}

// frozen reports whether the freezer of an instance's cgroup is frozen, if its
// config names the cgroup. A monitor does not notice what LXC's tools did not do.
func (d *Driver) frozen(e entry) bool {
	group := e.conf.get(keyGroup)
	if group == "" {
		return false
	}
	if d.unified() {
		return isFrozen(filepath.Join(d.opts.Cgroup, group, "cgroup.events"))
	}
	return isFrozen(filepath.Join(d.opts.Cgroup, "freezer", group, freezerV1))
}

// unfreeze thaws a frozen instance, whose freezer is file. lxc-unfreeze does
// nothing if the monitor takes the instance for running, because LXC's tools did
// not freeze it or could not end that.
func (d *Driver) unfreeze(ctx context.Context, name, file string) error {
	code, err := d.tool(ctx, d.opts.EndTimeout, paths.LXCUnfreeze, name)
	if err == nil && code != 0 {
		err = fault.New(fault.Transient, "lxc-unfreeze failed with exit code %d", code)
	}
	if err == nil && isFrozen(file) {
		err = thaw(file)
	}
	return err
}

// thaw thaws an instance of whose freezer the file is. The monitor is not told.
func thaw(file string) error {
	dir, base := filepath.Split(file)
	if base == freezerV1 {
		return os.WriteFile(file, []byte("THAWED"), 0)
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("0"), 0)
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

// awaitFreezer sends an event when a listing shows the new state. The tools of LXC
// inform the monitor after they changed the freezer.
func (w *watcher) awaitFreezer(f *freezer, frozen bool) {
	for deadline := time.Now().Add(w.d.opts.EndTimeout); time.Now().Before(deadline); {
		e, err := w.d.readEntry(f.name)
		if err != nil {
			break
		}
		s, err := w.d.look(w.ctx, e)
		if err != nil || (s == containerbroker.StatusFrozen) == frozen {
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
