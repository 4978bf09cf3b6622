//go:build integration

package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// I7, I8: an agent that finds no daemon running starts and configures one; it is
// killed at every point of that, in the order in which they lie, and the next
// one goes on: one daemon, one pool, one bridge, the kernel's limits raised.
func TestInitialiser(t *testing.T) {
	for _, daemon := range initialised {
		t.Run(daemon.Name, func(t *testing.T) { initialise(t, daemon) })
	}
}

func initialise(t *testing.T, daemon lxdtest.Daemon) {
	w := bareWorld(t, daemon)
	keep := w.declare("keep", map[string]int{"keep": 32})
	for i, point := range initPoints {
		w.plan = point + "=kill#1"
		w.start()
		if i == 0 {
			w.hostler("apply", "--allow", "destroy", "-f", keep.path)
		}
		select {
		case <-w.agent.exited:
		case <-time.After(patience):
			t.Fatalf("%s was never hit", point)
		}
	}
	w.revived = time.Now()
	w.start()
	before := w.converge(nil, keep)
	w.whole()
	w.wantHits(initPoints...)
	w.stop()
	w.start()
	w.converge(before, keep)
	t.Logf("the recovery took %v", w.slowest.Round(time.Millisecond))
}

// bareWorld is a world in which no daemon runs and a kernel limit is too low.
func bareWorld(t *testing.T, daemon lxdtest.Daemon) *world {
	t.Helper()
	restore := harness.KeepParameters(t)
	t.Cleanup(restore)
	dir, err := os.MkdirTemp("", "hostlerinit") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	lxd := &lxdtest.Server{Daemon: daemon, Dir: dir, Socket: filepath.Join(dir, "unix.socket"), Pool: "default"}
	w := newWorld(t, nil, "init")
	w.lxd, w.lxdDir = lxd, dir
	w.room.limit(t, "max_user_watches", "8192")
	t.Cleanup(func() {
		w.kill()
		w.tearDown()
		_ = os.RemoveAll(dir)
	})
	return w
}

// whole checks that everything is there once.
func (w *world) whole() {
	w.Helper()
	if pids := w.daemons(); len(pids) != 1 {
		w.Errorf("%d daemons run: %v", len(pids), pids)
	}
	for path, most := range map[string]int{"/1.0/storage-pools": 1, "/1.0/profiles": 2} {
		var have []string
		if err := w.lxd.API("GET", path, nil, &have); err != nil || len(have) != most {
			w.Errorf("%s: %v, %v", path, have, err)
		}
	}
	if bridges := w.bridges(); len(bridges) != 1 {
		w.Errorf("bridges: %v", bridges)
	}
	if got := w.room.limit(w.T, "max_user_watches", ""); got != limits["fs/inotify/max_user_watches"] {
		w.Errorf("the limit is %s", got)
	}
	dropIn, err := os.ReadFile(filepath.Join(w.room.dir, "sysctl.d/60-hostler.conf"))
	if err != nil || strings.Count(string(dropIn), "max_user_watches") != 1 {
		w.Errorf("the drop-in file: %q, %v", dropIn, err)
	}
	left, _ := filepath.Glob(filepath.Join(w.room.dir, "sysctl.d/*.hostler-tmp"))
	more, _ := filepath.Glob(w.path("state/*.hostler-tmp"))
	if left = append(left, more...); len(left) > 0 {
		w.Errorf("left behind: %v", left)
	}
}

// wantHits checks that points were hit since the world began.
func (w *world) wantHits(points ...string) {
	w.Helper()
	b, _ := os.ReadFile(w.path("hits"))
	hits := strings.Fields(string(b))
	for _, point := range points {
		if !slices.Contains(hits, point) {
			w.Errorf("%s was never hit", point)
		}
	}
}

// bridges lists the networks that the daemon manages.
func (w *world) bridges() (names []string) {
	var networks []struct {
		Name    string `json:"name"`
		Managed bool   `json:"managed"`
	}
	if err := w.lxd.API("GET", "/1.0/networks?recursion=1", nil, &networks); err != nil {
		w.Errorf("cannot list networks: %v", err)
	}
	for _, n := range networks {
		if n.Managed {
			names = append(names, n.Name)
		}
	}
	return names
}

// daemons returns the daemon's processes that have the world's directory.
func (w *world) daemons() (pids []int) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range commands {
		command, _ := os.ReadFile(path)
		argv := strings.Split(string(command), "\x00")
		environment, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if len(argv) < 2 || filepath.Base(argv[0]) != filepath.Base(w.daemon().Program) || argv[1] != "--group" || !slices.Contains(strings.Split(string(environment), "\x00"), w.daemon().Variable+"="+w.lxdDir) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(filepath.Dir(path)), "%d", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// tearDown takes away the daemon that an agent started.
func (w *world) tearDown() {
	if len(w.daemons()) == 0 {
		return
	}
	w.sweep()
	w.forgetImages()
	paths := []string{}
	for _, bridge := range w.bridges() {
		paths = append(paths, "/1.0/networks/"+bridge)
	}
	var pools []string
	_ = w.lxd.API("GET", "/1.0/storage-pools", nil, &pools)
	for _, path := range slices.Concat([]string{"/1.0/profiles/hostler"}, paths, pools) {
		if err := w.lxd.API("DELETE", path, nil, nil); err != nil {
			w.Errorf("cannot delete %s: %v", path, err)
		}
	}
	for _, pid := range w.daemons() {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	harness.Wait(w, "the end of the daemon", patience, func() error {
		if pids := w.daemons(); len(pids) > 0 {
			return fmt.Errorf("%v", pids)
		}
		return nil
	})
}
