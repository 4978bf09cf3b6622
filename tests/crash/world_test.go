//go:build integration

package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// patience bounds every wait for a condition. Recovery shall take far less:
// the slowest one is printed.
const patience = 60 * time.Second

// world is one agent with its folders, and what a test knows of it.
type world struct {
	*testing.T
	lxd       *lxdtest.Server // an LXD or an Incus
	lxdDir    string          // the daemon's folder, as the agent finds it
	bin, dir  string
	namespace string
	room      *room
	prefix    []string // what the agent's command line begins with
	agent     *agent
	// plan arms crash points for the next start, and for that one only.
	plan string
	// restartLXD has the daemon killed and started again before the agent comes
	// back.
	restartLXD bool
	// atHit names the point at which the daemon is killed and started again while
	// the agent stands there.
	atHit string
	// deaths counts the agents that were found dead. revived is when the last
	// one was started in the place of a dead one, until all was well again.
	deaths  int
	revived time.Time
	slowest time.Duration // of all recoveries
}

// newWorld prepares an agent of its own namespace on the server; start starts
// it. With the test it ends, and all that bears the namespace's stamp goes.
func newWorld(t *testing.T, lxd *lxdtest.Server, namespace string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "hostlercrash") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, lxd: lxd, bin: binaries(t), dir: dir, namespace: namespace, room: newRoom(t)}
	if lxd != nil {
		w.lxdDir = lxd.Dir
	}
	w.write("etc/hostler.yaml", "namespace: "+namespace+"\nretry-delay: 500ms\ntransient-retry-interval: 5s\n")
	for _, sub := range []string{"state", "run"} {
		if err := os.Mkdir(w.path(sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		w.kill()
		if t.Failed() {
			t.Logf("the agent's log:\n%s", tail(w.path("log"), 120))
		}
		if lxd != nil {
			w.sweep()
		}
		_ = os.RemoveAll(dir)
	})
	return w
}

// folders is the part of an agent's environment that names the daemons' folders:
// that of the world's own, and an absent one of the other.
func (w *world) folders() (env []string) {
	for _, daemon := range []lxdtest.Daemon{lxdtest.LXD, lxdtest.Incus} {
		dir := w.path("none")
		if daemon == w.daemon() {
			dir = w.lxdDir
		}
		env = append(env, daemon.Variable+"="+dir)
	}
	return env
}

// daemon is the kind of the world's daemon, LXD where it has none.
func (w *world) daemon() lxdtest.Daemon {
	if w.lxd == nil {
		return lxdtest.LXD
	}
	return w.lxd.Daemon
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// write makes a file of the world and returns its path.
func (w *world) write(name, content string) string {
	w.Helper()
	path := w.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.Fatal(err)
	}
	return path
}

// part runs a part of a test in the world, as a subtest that may fail alone.
func (w *world) part(t *testing.T, run func(*world)) {
	inner := *w
	inner.T, inner.deaths, inner.slowest, inner.plan, inner.restartLXD, inner.atHit = t, 0, 0, "", false, ""
	defer func() {
		if inner.Failed() {
			inner.kill() // the next part starts an agent of its own
		}
		w.agent, w.slowest = inner.agent, max(w.slowest, inner.slowest)
	}()
	run(&inner)
}

// binaries builds the agent with its crash points and the command line, once.
func binaries(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(harness.Root(t), ".cache", "crash")
	build.Do(func() {
		_, buildErr = harness.Try([]string{"CGO_ENABLED=0"}, "go", "build", "-buildvcs=false", "-tags", "failpoint", "-o", dir+"/",
			filepath.Join(harness.Root(t), "cmd")+"/...")
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return dir
}

var (
	build    sync.Once
	buildErr error
)

// try runs the command line.
func (w *world) try(args ...string) (string, error) {
	return harness.Try([]string{"HOSTLER_SOCKET=" + w.path("run/hostler.sock"), "LXD_DIR=", "INCUS_DIR="}, filepath.Join(w.bin, "hostler"), args...)
}

// hostler is try for what must work on a living agent.
func (w *world) hostler(args ...string) string {
	w.Helper()
	out, err := w.try(args...)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

// acknowledged repeats a command until the agent acknowledges it, and brings
// the agent back where it died.
func (w *world) acknowledged(args ...string) {
	w.Helper()
	harness.Wait(w, "hostler "+strings.Join(args, " "), patience, func() error {
		w.meddle()
		_, err := w.try(args...)
		if err != nil {
			w.revive()
		}
		return err
	})
}

// revive starts the agent again if it has died.
func (w *world) revive() {
	w.Helper()
	if w.agent == nil || !w.agent.dead() {
		return
	}
	w.deaths++
	if w.restartLXD {
		w.lxd.Kill()
		w.lxd.Run()
	}
	w.revived = time.Now()
	w.start()
}

// meddle kills the daemon once the agent stands at the point where that is wanted.
func (w *world) meddle() {
	w.Helper()
	if hits, _ := os.ReadFile(w.path("hits")); w.atHit != "" && slices.Contains(strings.Fields(string(hits)), w.atHit) {
		w.atHit = ""
		w.lxd.Kill()
		w.lxd.Run()
	}
}

func tail(path string, lines int) string {
	b, _ := os.ReadFile(path)
	all := strings.Split(string(b), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// room is a mount namespace in which agents see kernel limits and a sysctl.d
// of the test's own, so that the machine's stay as they are.
type room struct {
	holder *os.Process
	dir    string
}

// limits are the kernel limits that the agent raises, in the room high enough.
var limits = map[string]string{
	"fs/inotify/max_user_instances": "16384", "fs/inotify/max_user_watches": "1048576",
	"kernel/keys/maxkeys": "20000", "kernel/keys/maxbytes": "2000000",
}

const roomScript = `
set -e
for f in fs/inotify/max_user_instances fs/inotify/max_user_watches kernel/keys/maxkeys kernel/keys/maxbytes; do
  mount --bind "$1/$(basename $f)" /proc/sys/$f
done
mount --bind "$1/sysctl.d" /etc/sysctl.d
mount --bind "$1/run" /run/hostler
mount --bind "$1/lxd" "$2"
mount --bind "$1/incus" "$3"
touch "$1/ready"
exec sleep infinity
`

func newRoom(t *testing.T) *room {
	t.Helper()
	r := &room{dir: t.TempDir()}
	for name, value := range limits {
		if err := os.WriteFile(filepath.Join(r.dir, filepath.Base(name)), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{"sysctl.d", "run"} {
		if err := os.Mkdir(filepath.Join(r.dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// A daemon that an agent starts leaves the room: where a part of /proc is
	// covered, the kernel lets no container mount a /proc of its own.
	for _, daemon := range []lxdtest.Daemon{lxdtest.LXD, lxdtest.Incus} {
		outside := fmt.Sprintf("#!/bin/sh\nexec nsenter --mount=/proc/%d/ns/mnt %s \"$@\"\n", os.Getpid(), daemon.Program)
		if err := os.WriteFile(filepath.Join(r.dir, daemon.Name), []byte(outside), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if os.Mkdir("/run/hostler", 0o755) == nil {
		t.Cleanup(func() { _ = os.Remove("/run/hostler") })
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r.holder, err = os.StartProcess("/usr/bin/unshare", []string{"unshare", "--mount", "--propagation", "slave", "sh", "-c", roomScript, "sh", r.dir, lxdtest.LXD.Program, lxdtest.Incus.Program},
		&os.ProcAttr{Env: os.Environ(), Files: []*os.File{null, os.Stderr, os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.holder.Signal(syscall.SIGKILL)
		_, _ = r.holder.Wait()
	})
	harness.Wait(t, "the mount namespace", patience, func() error {
		_, err := os.Stat(filepath.Join(r.dir, "ready"))
		return err
	})
	return r
}

// limit reads or, with a value, sets a kernel limit of the room.
func (r *room) limit(t *testing.T, name, value string) string {
	t.Helper()
	path := filepath.Join(r.dir, name)
	if value != "" {
		if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (r *room) String() string { return fmt.Sprintf("/proc/%d/ns/mnt", r.holder.Pid) }
