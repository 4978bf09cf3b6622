//go:build integration

// Package storage tries the storage of machines from outside: the real daemon,
// the real command, a real LXD and the kernel's own mounts and loop devices.
package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// world is an agent beside a private LXD.
type world struct {
	*harness.Agent
	t   *testing.T
	lxd *lxdtest.Server
}

func start(t *testing.T) world {
	t.Helper()
	w := world{t: t, lxd: lxdtest.Start(t)}
	w.Agent = harness.NewAgent(t, w.lxd.Dir)
	w.Start()
	return w
}

// example is examples/storage.yaml with the tiny image.
func example(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(harness.Root(t), "examples", "storage.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(b), "image: debian/12", "image: lxd:tiny", 1)
}

// in runs a shell script in the machine app as a user of it.
func (w world) in(user, script string) (string, error) {
	return harness.Try([]string{"LXD_DIR=" + w.lxd.Dir}, "lxc", "exec", "app", "-T", "--user", user, "--group", user, "--env", "PATH=/bin:/sbin", "--", "/bin/sh", "-c", script)
}

func (w world) must(user, script string) string {
	w.t.Helper()
	out, err := w.in(user, script)
	if err != nil {
		w.t.Fatalf("user %s in the machine: %s: %v", user, script, err)
	}
	return strings.TrimSpace(out)
}

// nothingToDo fails unless a plan of the file is empty.
func (w world) nothingToDo(file, when string) {
	w.t.Helper()
	if code, out := w.Exit("plan", "-f", file); code != 0 {
		w.t.Errorf("%s, a plan exits with %d:\n%s", when, code, out)
	}
}

const write = `for d in /srv /scratch /var/log/app; do
  mkdir $d/root && echo root > $d/root/file && mkdir $d/open && /bin/busybox chmod 1777 $d/open || exit 1
done
echo raw as root | dd of=/dev/hostler-raw bs=512 conv=sync 2>/dev/null && /bin/busybox chmod 666 /dev/hostler-raw`

const writeAsUser = `for d in /srv /scratch /var/log/app; do echo user > $d/open/file || exit 1; done
! echo x 2>/dev/null > /srv/root/file || exit 1
echo raw as user | dd of=/dev/hostler-raw bs=512 seek=1 conv=sync 2>/dev/null`

const read = `cat /srv/root/file /srv/open/file /var/log/app/root/file /var/log/app/open/file
/bin/busybox stat -c %u:%g /srv/open/file /srv/root/file
dd if=/dev/hostler-raw bs=512 count=2 2>/dev/null | /bin/busybox tr -d '\0'`

const want = "root\nuser\nroot\nuser\n1000:1000\n0:0\nraw as root\nraw as user"

// A machine with every kind of storage writes as root and as a user. Its data
// outlives restarts, losses and reboots of the host (S5, S24, S32, V13, V21).
func TestStorageOfAMachine(t *testing.T) {
	w := start(t)
	file := w.File("storage", example(t))
	code, out := w.Exit("plan", "-f", file)
	for _, object := range []string{"volume/data", "volume/raw", "filesystem/www", "filesystem/scratch", "filesystem/logs", "machine/app"} {
		if code != 2 || !strings.Contains(out, object) {
			t.Errorf("the plan (exit %d) says nothing of %s:\n%s", code, object, out)
		}
	}
	if mounts := harness.Mounts(t, w.Dir); len(mounts) > 0 {
		t.Errorf("a plan mounted %v", mounts)
	}
	w.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "3m")
	w.nothingToDo(file, "after the apply")
	w.must("0", write)
	w.must("1000", writeAsUser)
	there := func(when string) {
		t.Helper()
		if out := w.must("0", read); out != want {
			t.Errorf("%s, there is\n%s", when, out)
		}
		if n := len(harness.Loops(t, w.State())); n != 3 {
			t.Errorf("%s, there are %d loop devices", when, n)
		}
	}
	there("at first")
	if out := w.must("0", "df -m /var/log/app | tail -1"); !strings.Contains(out, " 1") {
		t.Errorf("the limit of a rootfs filesystem: %s", out)
	}

	w.Run("restart", "app", "--wait")
	there("after a restart of the machine")
	if out := w.must("1000", "cat /scratch/open/file"); out != "user" {
		t.Errorf("what is in memory is lost with the machine: %q", out)
	}

	running := w.must("0", "/bin/busybox stat -c %Y /proc/1")
	w.Stop()
	w.Start()
	there("after a restart of the agent")
	w.Kill()
	w.Start()
	there("after the agent was killed")
	w.nothingToDo(file, "after the agent was killed")
	w.lxd.Stop()
	w.lxd.Run()
	there("after a restart of LXD")
	w.lxd.Kill()
	w.lxd.Run()
	there("after LXD was killed")
	if now := w.must("0", "/bin/busybox stat -c %Y /proc/1"); now != running {
		t.Error("the machine was started again meanwhile")
	}
	w.Run("wait", "declaration/storage", "--for", "ready", "--timeout", "1m")
	w.lost(file, there)

	w.Kill()
	harness.Run(t, "env", "LXD_DIR="+w.lxd.Dir, "lxc", "stop", "--force", "app")
	w.lxd.Stop()
	harness.PullStorage(t, w.Dir)
	w.lxd.Run()
	w.Start()
	harness.Wait(t, "the machine's start", 2*time.Minute, func() error {
		_, err := w.in("0", "true")
		return err
	})
	w.Run("wait", "declaration/storage", "--for", "ready", "--timeout", "1m")
	there("after a restart of the host")
	if out := w.must("0", "ls /scratch"); out != "" {
		t.Errorf("what was in memory outlived the host: %q", out)
	}
	w.nothingToDo(file, "after a restart of the host")
	w.removal(file)
}

// removal: of undeclared storage only retained storage stays, and it comes back
// with its declaration.
func (w world) removal(file string) {
	t := w.t
	t.Helper()
	bare := w.File("storage", "version: 1\n")
	code, out := w.Exit("plan", "--allow", "destroy", "-f", bare)
	if code != 2 || !strings.Contains(out, "destroy") || !strings.Contains(out, "volume/raw") {
		t.Errorf("what destroys data is not said (exit %d):\n%s", code, out)
	}
	kept := filepath.Join(w.State(), "volumes", "data.img")
	if !strings.Contains(out, kept) {
		t.Errorf("it is not said that data is kept in %s:\n%s", kept, out)
	}
	w.Run("apply", "--allow", "destroy", "-f", bare, "--wait", "--timeout", "2m")
	w.bare("volumes/data.img volumes/data.json")
	if status := w.Run("status"); !strings.Contains(status, "Unknown storage") || !strings.Contains(status, kept) {
		t.Errorf("the status says nothing of the data that nothing declares:\n%s", status)
	}
	if events := w.Run("events", "volume/data"); !strings.Contains(events, kept) {
		t.Errorf("it was not said that data is kept in %s:\n%s", kept, events)
	}

	w.File("storage", example(t))
	w.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "3m")
	if out := w.must("1000", "cat /srv/open/file; ls /var/log/app"); out != "user\nlost+found" {
		t.Errorf("what was kept is not back: %q", out)
	}
	w.File("storage", strings.Replace(example(t), ", retain: true", "", 1))
	w.Run("apply", "--allow", "destroy", "-f", file, "--wait")
	w.Run("delete", "-f", file, "--wait")
	w.bare("")
}

// bare fails unless the agent's storage consists of these files only. The
// folder of mounts goes a moment after the last record.
func (w world) bare(files string) {
	w.t.Helper()
	harness.Wait(w.t, "what is left", 5*time.Second, func() error {
		if mounts := harness.Mounts(w.t, w.Dir); len(mounts) > 0 {
			return fmt.Errorf("left mounted: %v", mounts)
		}
		if loops := harness.Loops(w.t, w.Dir); len(loops) > 0 {
			return fmt.Errorf("left attached: %v", loops)
		}
		var found []string
		for _, part := range []string{"volumes", "filesystems", "rootfs", "mounts"} {
			_ = filepath.WalkDir(filepath.Join(w.State(), part), func(path string, d os.DirEntry, err error) error {
				if err == nil && (!d.IsDir() || part == "mounts") {
					name, _ := filepath.Rel(w.State(), path)
					found = append(found, name)
				}
				return nil
			})
		}
		if got := strings.Join(found, " "); got != files {
			return fmt.Errorf("left: %q, want %q", got, files)
		}
		return nil
	})
}
