//go:build integration

package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/agent/client"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// says waits until a volume or filesystem says all of the words.
func (w world) says(kind, name string, words ...string) client.Storage {
	w.t.Helper()
	var row client.Storage
	harness.Wait(w.t, kind+" "+name, 30*time.Second, func() error {
		row = w.rows(kind)[name]
		for _, word := range words {
			if text := string(row.Status) + ": " + row.Message; !strings.Contains(text, word) {
				return fmt.Errorf("%q says nothing of %q", text, word)
			}
		}
		return nil
	})
	return row
}

// The host's filesystem below the volumes fills up and turns read-only. The
// status reports the machine's losses, nothing else is affected, and everything
// recovers with the host.
func TestFaultsOfTheHost(t *testing.T) {
	lxd := lxdtest.Start(t)
	w := world{t: t, lxd: lxd, Agent: harness.NewAgent(t, lxd.Dir)}
	volumes := filepath.Join(w.State(), "volumes")
	if err := os.MkdirAll(volumes, 0o700); err != nil {
		t.Fatal(err)
	}
	harness.Run(t, "mount", "-t", "tmpfs", "-o", "size=64M", "hostler-test", volumes)
	t.Cleanup(func() { // where the test fails: below a folder that is gone they would not be found
		for _, device := range harness.Loops(t, volumes) {
			harness.Run(t, "losetup", "--detach", device)
		}
	})
	w.Start()
	const site = `version: 1
volumes: {data: {provider: loop, size: 48MiB, allocation: sparse, retain: true}%s}
filesystems: {www: {volume: data}}
machines: {app: {type: lxd, image: "lxd:tiny", storage: [%s]}}
`
	w.Apply("site", fmt.Sprintf(site, "", "{filesystem: www, path: /srv}"))
	w.must("0", "echo kept > /srv/file; sync")

	// Writes of the machine have nowhere to go (EIO).
	fill := filepath.Join(volumes, "fill")
	_, _ = harness.Try(nil, "dd", "if=/dev/zero", "of="+fill, "bs=1M")
	if out, err := w.in("0", "dd if=/dev/zero of=/srv/more bs=1M count=20; sync; for i in 1 2 3 4 5 6 7 8 9; do mkdir /srv/$i; sync; done; echo more > /srv/last"); err == nil {
		t.Errorf("the machine wrote what the host cannot hold:\n%s", out)
	}
	w.Run("retry", "filesystem/www")
	w.says("filesystems", "www", "error", "read-only after an error")
	if out := w.must("0", "cat /srv/file"); out != "kept" {
		t.Errorf("the machine reads %q", out)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	w.Run("apply", "--allow", "destroy", "-f", w.File("site", fmt.Sprintf(site, "", "")))
	harness.Wait(t, "the end of the mount", 30*time.Second, func() error {
		if mounts := harness.Mounts(t, filepath.Join(w.State(), "mounts", "host")); len(mounts) > 0 {
			return fmt.Errorf("%v", mounts)
		}
		if f := w.rows("filesystems")["www"]; f.Status == "error" { // which an apply would take for its own
			return fmt.Errorf("%+v", f)
		}
		return nil
	})
	w.Apply("site", fmt.Sprintf(site, "", "{filesystem: www, path: /srv}"))
	if out := w.must("0", "cat /srv/file && echo again > /srv/again && cat /srv/again"); out != "kept\nagain" {
		t.Errorf("after the host was mended, the machine reads %q", out)
	}

	// Nothing can be made on a host's filesystem that is read-only.
	w.Apply("site", fmt.Sprintf(site, "", ""))
	harness.Wait(t, "a read-only filesystem", 30*time.Second, func() error {
		return unix.Mount("", volumes, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=64M")
	})
	w.Run("apply", "--allow", "destroy", "-f", w.File("site", fmt.Sprintf(site, ", raw: {provider: loop, size: 2MiB}", "")))
	w.says("volumes", "raw", "error", "read-only")
	if err := unix.Mount("", volumes, "", unix.MS_REMOUNT, "size=64M"); err != nil {
		t.Fatal(err)
	}
	w.Run("retry", "volume/raw")
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	w.File("site", strings.Replace(fmt.Sprintf(site, "", ""), ", retain: true", "", 1))
	w.Run("apply", "--allow", "destroy", "-f", filepath.Join(w.Dir, "site.yaml"), "--wait")
	w.Run("delete", "declaration/site", "--wait", "--timeout", "1m")
	if left, err := os.ReadDir(volumes); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if err := unix.Unmount(volumes, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	w.bare("")
}

// Obstacles are reported and unharmed, and work continues once they are removed.
func TestObstaclesAreReported(t *testing.T) {
	w := start(t)
	const site = `version: 1
volumes: {data: {provider: loop, size: %s}}
%s
machines:
  app: {type: lxd, image: "lxd:tiny", storage: [%s]}
`
	declare := func(size, filesystems, given string) string {
		file := w.File("site", fmt.Sprintf(site, size, filesystems, given))
		w.Run("apply", "--allow", "destroy", "-f", file)
		return file
	}
	// A volume that is larger than the host's disk.
	declare("100TiB", "", "{volume: data}")
	w.says("volumes", "data", "pending", "100 TiB are needed")
	harness.Wait(t, "the machine to say so", 30*time.Second, func() error {
		if row := w.Machines()["app"]; row.Status != "pending" || !strings.Contains(row.Message, "volume/data") {
			return fmt.Errorf("%+v", row)
		}
		return nil
	})
	file := declare("64MiB", "", "{volume: data}")
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	w.nothingToDo(file, "after the size was mended")

	// Foreign data, which is not formatted. The host writes it below the machine.
	device := w.rows("volumes")["data"].Device
	harness.Run(t, "mkfs.ext4", "-q", "-L", "family", device)
	small := w.File("site", fmt.Sprintf(site, "64MiB", "filesystems: {www: {volume: data, type: xfs}}", "{filesystem: www, path: /srv}"))
	if code, out := w.Exit("apply", "--allow", "destroy", "-f", small); code != 1 || !strings.Contains(out, "300MiB") {
		t.Errorf("xfs on a volume that is too small: %d, %s", code, out)
	}
	declare("64MiB", "filesystems: {www: {volume: data}}", "{filesystem: www, path: /srv}")
	w.says("filesystems", "www", "error", "ext4", "family", "wipe: true")
	if label := strings.TrimSpace(harness.Run(t, "e2label", w.rows("volumes")["data"].Device)); label != "family" {
		t.Errorf("what was refused bears %q now", label)
	}
	declare("64MiB", "filesystems: {www: {volume: data, wipe: true}}", "{filesystem: www, path: /srv}")
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	w.must("0", "echo mine > /srv/file")

	// Data that another process removes while it is used.
	image := filepath.Join(w.State(), "volumes", "data.img")
	if err := os.Remove(image); err != nil {
		t.Fatal(err)
	}
	w.Run("retry", "volume/data")
	w.says("volumes", "data", "error", "data.img")
	if out := w.must("0", "cat /srv/file"); out != "mine" {
		t.Errorf("the machine, which still has it, reads %q", out)
	}
	w.Run("delete", "declaration/site", "--wait", "--timeout", "1m")
	w.bare("")
}
