//go:build integration

package storage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

const hands = `version: 1
volumes:
  one: {provider: loop, size: 8MiB}
  two: {provider: loop, size: 8MiB}
  data: {provider: loop, size: 64MiB, allocation: sparse}
filesystems: {%[4]s: {volume: data}}
machines:
  %[1]s: {type: lxd, image: "lxd:tiny", storage: [{volume: %[2]s}]}
  app: {type: lxd, image: "lxd:tiny", storage: [{volume: %[3]s}, {filesystem: %[4]s, path: /srv}]}
`

// P19, S23: when two machines swap their volumes, both detach before either
// attaches. Nothing is lost, and no volume has two machines at any time. The same
// holds when a filesystem is renamed.
func TestVolumesAreSwappedBetweenMachines(t *testing.T) {
	w := start(t)
	lxc := func(args ...string) (string, error) {
		return harness.Try([]string{"LXD_DIR=" + w.lxd.Dir}, "lxc", args...)
	}
	in := func(machine, script string) string {
		t.Helper()
		out, err := lxc("exec", machine, "-T", "--env", "PATH=/bin:/sbin", "--", "/bin/sh", "-c", script)
		if err != nil {
			t.Fatalf("in %s: %s: %v", machine, script, err)
		}
		return strings.TrimSpace(out)
	}
	has := func(machine, volume string) bool {
		devices, err := lxc("config", "device", "list", machine)
		return err == nil && strings.Contains(devices, "vol-"+volume)
	}
	// moves waits until the volume is the machine's, and fails should it be
	// while it still is the other's.
	moves := func(volume, from, to string) {
		t.Helper()
		harness.Wait(t, volume+" in "+to, time.Minute, func() error {
			if !has(to, volume) {
				return fmt.Errorf("%s has it: %v", from, has(from, volume))
			}
			if has(from, volume) {
				t.Errorf("%s and %s both have %s", from, to, volume)
			}
			return nil
		})
	}
	content := func(machine, volume string) {
		t.Helper()
		if out := in(machine, "dd if=/dev/hostler-"+volume+" bs=512 count=1 2>/dev/null | /bin/busybox tr -d '\\0'"); out != "this is "+volume {
			t.Errorf("%s reads %q of %s", machine, out, volume)
		}
	}
	w.Apply("site", fmt.Sprintf(hands, "web", "one", "two", "www"))
	for machine, volume := range map[string]string{"web": "one", "app": "two"} {
		in(machine, "echo this is "+volume+" | dd of=/dev/hostler-"+volume+" bs=512 conv=sync 2>/dev/null")
	}
	in("app", "echo kept > /srv/file")

	file := w.File("site", fmt.Sprintf(hands, "web", "two", "one", "www2"))
	w.Run("apply", "--allow", "destroy", "-f", file)
	moves("one", "web", "app")
	moves("two", "app", "web")
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	w.nothingToDo(file, "after the change of hands")
	content("app", "one")
	content("web", "two")
	if out := in("app", "cat /srv/file"); out != "kept" {
		t.Errorf("the filesystem holds %q", out)
	}

	w.Run("apply", "--allow", "destroy", "-f", w.File("site", fmt.Sprintf(hands, "db", "two", "one", "www2")))
	moves("two", "web", "db")
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	content("db", "two")
	w.Run("delete", "declaration/site", "--wait")
	w.bare("")
}
