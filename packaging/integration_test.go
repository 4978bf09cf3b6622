//go:build integration

package packaging_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/internal/fault"
	"hostler/internal/hostlock"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// C9: a single call installs, missing lists are fetched, a second Install
// starts no program.
func TestRealInstall(t *testing.T) {
	c := newChroot(t)
	c.offer("toy", nil)
	c.offer("tool", map[string]string{"postinst": "read answer || true; test -z \"$answer\"; test \"$DEBIAN_FRONTEND\" = noninteractive"})
	c.must(c.install("toy", "tool"))
	c.wantClean("toy", "tool")
	if !slices.Contains(c.said, "fetching the lists of packages") || !strings.Contains(strings.Join(c.said, "\n"), "configuring tool") {
		t.Errorf("said %q", c.said)
	}
	c.must(c.install("toy", "tool"))
	if len(c.said) != 0 {
		t.Errorf("second time: %q", c.said)
	}
	if err := c.install("absent"); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "Unable to locate package absent") {
		t.Errorf("got %v", err)
	}
}

// F25: Install waits for a held lock, names its holder, and then goes on.
func TestRealLockIsWaitedFor(t *testing.T) {
	c := newChroot(t)
	c.offer("toy", nil)
	pid := c.child("CHILD_LOCK=1")
	c.wait("the lock", func() bool { return c.exists("locked") })
	released := time.AfterFunc(2500*time.Millisecond, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	defer released.Stop()
	c.must(c.install("toy"))
	c.wantClean("toy")
	if !strings.HasPrefix(c.said[0], "waiting for dpkg's lock, held by ") || !strings.Contains(c.said[0], "(process "+strconv.Itoa(pid)+")") {
		t.Errorf("said %q", c.said)
	}
}

// F26: the error names a failing package. After it is mended the next try
// succeeds.
func TestRealFailingPostinst(t *testing.T) {
	c := newChroot(t)
	c.offer("toy", map[string]string{"postinst": "test -e /mended || { echo 'toy is broken' >&2; exit 1; }"})
	err := c.install("toy")
	if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "toy: installed toy package post-installation script") || !c.apt.Unfinished() {
		t.Fatalf("got %v", err)
	}
	if err := c.install("toy"); err == nil {
		t.Error("a second try succeeded")
	}
	c.write("mended", "")
	c.must(c.install("toy"))
	c.wantClean("toy")
}

// I13: the agent is killed while a postinst runs. apt finishes alone; the next
// agent waits for it and has no work left.
func TestRealAgentKilledDuringPostinst(t *testing.T) {
	c := newChroot(t)
	c.offer("toy", map[string]string{"postinst": "touch /configuring; while [ ! -e /go ]; do sleep 0.1; done"})
	pid := c.child("CHILD_INSTALL=toy")
	c.wait("the postinst", func() bool { return c.exists("configuring") })
	c.kill(pid)
	if !c.apt.Unfinished() {
		t.Error("no mark of an unfinished installation")
	}
	time.AfterFunc(time.Second, func() { c.write("go", "") })
	c.must(c.install("toy"))
	c.wantClean("toy")
	if !strings.HasPrefix(c.said[0], "waiting for dpkg's lock, held by apt-get") || len(slices.DeleteFunc(c.said, func(s string) bool { return strings.HasPrefix(s, "waiting") })) != 0 {
		t.Errorf("said %q", c.said)
	}
}

// I13: apt and dpkg are killed too, as in a power cut, during unpacking and
// during configuring.
func TestRealPackageManagerKilled(t *testing.T) {
	for _, script := range []string{"preinst", "postinst"} {
		t.Run(script, func(t *testing.T) {
			c := newChroot(t)
			c.offer("lib", nil)
			c.offer("toy", map[string]string{script: "touch /reached; while [ ! -e /go ]; do sleep 0.1; done"})
			pid := c.child("CHILD_INSTALL=lib toy")
			c.wait("the "+script, func() bool { return c.exists("reached") })
			group := c.aptGroup()
			c.kill(pid)
			c.must(syscall.Kill(-group, syscall.SIGKILL))
			c.wait("the end of apt", func() bool { return syscall.Kill(-group, 0) != nil })
			c.write("go", "")
			c.must(c.install("lib", "toy"))
			c.wantClean("lib", "toy")
		})
	}
}

// An unpacked package whose dependency is missing, as `dpkg -i` leaves it, is
// mended without the packages that the dependency recommends.
func TestRealMendingInstallsNoRecommendedPackage(t *testing.T) {
	c := newChroot(t)
	c.offer("toy", nil)
	c.offer("extra", nil)
	c.offer("lib", nil, "Recommends: extra")
	c.offer("broken", nil, "Depends: lib")
	c.offer("tool", nil)
	c.must(c.install("toy")) // fetches the lists
	_, err := inside(c.root).Run(t.Context(), run.Command{Path: paths.Dpkg, Args: []string{"--unpack", "/repo/broken_1_all.deb"}})
	c.must(err)
	c.must(c.install("tool"))
	c.wantClean("toy", "tool", "broken", "lib")
	if missing, err := c.apt.Missing([]string{"extra"}); err != nil || len(missing) == 0 {
		t.Errorf("the recommended package is installed: %v", err)
	}
}

// aptGroup returns the process group of the apt-get in the chroot, which holds
// dpkg's lock.
func (c *chroot) aptGroup() int {
	c.t.Helper()
	entries, err := os.ReadDir("/proc")
	c.must(err)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		comm, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
		root, _ := os.Readlink(filepath.Join("/proc", e.Name(), "root"))
		if string(comm) == "apt-get\n" && root == c.root {
			group, err := syscall.Getpgid(pid)
			c.must(err)
			return group
		}
	}
	c.t.Fatal("no apt-get runs in the chroot")
	return 0
}

// A daemon that a postinst starts blocks neither the host lock nor the
// installation.
func TestRealPostinstDaemonKeepsNoLock(t *testing.T) {
	c := newChroot(t)
	c.offer("toy", map[string]string{"postinst": "setsid sleep 300 & echo $! > /daemon"})
	path := filepath.Join(t.TempDir(), "lock", "host")
	lock, err := hostlock.Acquire(t.Context(), path, "installing", nil)
	c.must(err)
	c.must(c.install("toy"))
	data, err := os.ReadFile(filepath.Join(c.root, "daemon"))
	c.must(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	c.must(err)
	defer c.kill(pid)
	c.must(lock.Release())
	again, err := hostlock.TryAcquire(path, "again")
	if err != nil {
		t.Fatal(err)
	}
	c.must(again.Release())
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the daemon is gone: %v", err)
	}
}
