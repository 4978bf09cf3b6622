//go:build integration

package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/tests/harness"
)

const data = `version: 1
volumes: {data: {provider: loop, size: 400MiB, allocation: sparse}}
filesystems: {www: {volume: data, type: %s}}
machines:
  app:
    type: lxd
    image: lxd:tiny
    storage: [{filesystem: www, path: /srv}]
`

// rows returns `hostler get KIND -o json` by name.
func (w world) rows(kind string) map[string]client.Storage {
	w.t.Helper()
	var all []client.Storage
	if err := json.Unmarshal([]byte(w.Run("get", kind, "-o", "json")), &all); err != nil {
		w.t.Fatal(err)
	}
	byName := map[string]client.Storage{}
	for _, row := range all {
		byName[row.Name] = row
	}
	return byName
}

// Volumes and their filesystems grow while the machine writes, and do not
// shrink.
func TestGrowAsTheMachineWrites(t *testing.T) {
	w := start(t)
	for _, kind := range []string{"ext4", "xfs", "btrfs"} {
		w.Apply("site", fmt.Sprintf(data, kind))
		w.must("0", "(while :; do echo x; done > /srv/written) >/dev/null 2>&1 & echo $! > /tmp/writer")
		w.Run("volume", "resize", "data", "600MiB")
		harness.Wait(t, "the growth of the volume", 30*time.Second, func() error {
			if v := w.rows("volumes")["data"]; v.Size != 600<<20 {
				return fmt.Errorf("%+v", v)
			}
			return nil
		})
		if kind != "ext4" || mayResize(t) {
			w.Run("wait", "filesystem/www", "--for", "ready", "--timeout", "30s")
			fields := strings.Fields(w.must("0", "df -m /srv | tail -1"))
			if size, _ := strconv.Atoi(fields[1]); size < 500 {
				t.Errorf("%s has %v after its volume grew", kind, fields)
			}
		} else {
			// The kernel refuses it to a host without CAP_SYS_RESOURCE, which is
			// told; it grows when it is next mounted.
			harness.Wait(t, "the reason", 30*time.Second, func() error {
				if f := w.rows("filesystems")["www"]; !strings.Contains(f.Message, "CAP_SYS_RESOURCE") {
					return fmt.Errorf("%+v", f)
				}
				return nil
			})
		}
		w.must("0", "kill $(cat /tmp/writer); test -s /srv/written")
		if code, out := w.Exit("volume", "resize", "data", "100MiB"); code != 1 || !strings.Contains(out, "cannot shrink") {
			t.Errorf("shrinking exits with %d: %s", code, out)
		}
		smaller := w.File("site", fmt.Sprintf(data, kind))
		if code, out := w.Exit("apply", "--allow", "destroy", "-f", smaller); code != 1 || !strings.Contains(out, "cannot shrink") {
			t.Errorf("applying a smaller size exits with %d: %s", code, out)
		}
		w.Run("delete", "declaration/site", "--wait")
		w.bare("")
	}
}

// A running machine keeps the mode of its volume. The plan names the commands after
// which it has the declared one.
func TestAnotherModeOfAVolume(t *testing.T) {
	const raw = `version: 1
volumes: {raw: {provider: loop, size: 8MiB}}
machines:
  app: {type: lxd, image: lxd:tiny, storage: [{volume: raw, read-only: %t}]}
`
	const writes = "echo x | dd of=/dev/hostler-raw bs=512 conv=sync,fsync 2>/dev/null"
	w := start(t)
	w.Apply("site", fmt.Sprintf(raw, false))
	w.must("0", writes)
	file := w.File("site", fmt.Sprintf(raw, true))
	if code, out := w.Exit("apply", "--allow", "destroy,restart", "-f", file); code != 1 || !strings.Contains(out, "hostler stop app") || strings.Contains(out, "vol-raw") {
		t.Errorf("apply exits with %d:\n%s", code, out)
	}
	w.must("0", writes)
	w.Run("stop", "app")
	harness.Wait(t, "the stop", time.Minute, func() error {
		if row := w.Machines()["app"]; row.Status != "stopped" {
			return fmt.Errorf("%+v", row)
		}
		return nil
	})
	w.Run("start", "app")
	w.Run("wait", "machine/app", "--for", "ready", "--timeout", "1m")
	if out, err := w.in("0", writes); err == nil {
		t.Errorf("it still writes: %s", out)
	}
	w.nothingToDo(file, "after the stop and start")
	w.Run("delete", "declaration/site", "--wait")
	w.bare("")
}

// W10: plan and apply refuse to move a filesystem, and its machine keeps it.
func TestFilesystemDoesNotMove(t *testing.T) {
	w := start(t)
	site := func(provider string) string {
		text := strings.Replace(fmt.Sprintf(data, "ext4"), "{volume: data, type: ext4}", "{provider: "+provider+", size: 64MiB}", 1)
		return strings.Replace(text, "volumes: {data: {provider: loop, size: 400MiB, allocation: sparse}}\n", "", 1)
	}
	w.Apply("site", site("rootfs"))
	w.must("0", "echo kept > /srv/written")
	file := w.File("site", site("tmpfs"))
	for _, args := range [][]string{{"plan", "-f", file}, {"apply", "--allow", "destroy", "-f", file}} {
		if code, out := w.Exit(args...); code == 0 || !strings.Contains(out, "is on rootfs and cannot move to tmpfs") {
			t.Errorf("%s exits with %d: %s", args[0], code, out)
		}
	}
	if now := w.must("0", "cat /srv/written"); strings.TrimSpace(now) != "kept" {
		t.Errorf("it holds %q", now)
	}
	w.Apply("site", site("rootfs"))
	w.Run("delete", "declaration/site", "--wait")
	w.bare("")
}

// P23: an instance that a harvest mode leaves runs on without its volume, whose
// device may be another volume's next.
func TestLeftInstanceHasNoVolume(t *testing.T) {
	w := start(t)
	const volume = "version: 1\nvolumes: {raw: {provider: loop, size: 8MiB}}\n"
	w.Apply("site", volume+"machines: {app: {type: lxd, image: \"lxd:tiny\", storage: [{volume: raw}]}}\n")
	pid := w.must("0", "test -b /dev/hostler-raw && /bin/busybox stat -c %Y /proc/1")
	w.Run("harvest", "none")
	w.Run("apply", "--allow", "destroy", "-f", w.File("site", volume), "--wait")
	harness.Wait(t, "the detachment", 30*time.Second, func() error {
		if v := w.rows("volumes")["raw"]; v.Device != "" || v.Message != "" {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	if now := w.must("0", "test ! -e /dev/hostler-raw && /bin/busybox stat -c %Y /proc/1"); now != pid {
		t.Error("the machine was started again")
	}
	w.Run("harvest", "all")
	w.Run("delete", "declaration/site", "--wait")
	harness.Wait(t, "the end of the instance", 30*time.Second, func() error {
		if _, err := harness.Try([]string{"LXD_DIR=" + w.lxd.Dir}, "lxc", "info", "app"); err == nil {
			return errors.New("it is there")
		}
		return nil
	})
	w.bare("")
}

// mayResize says whether this host's processes have CAP_SYS_RESOURCE.
func mayResize(t *testing.T) bool {
	t.Helper()
	text := strings.TrimSpace(harness.Run(t, "sed", "-n", "s/^CapEff:\\t//p", "/proc/self/status"))
	set, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return set&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// Storage is attached to a running machine and detached. The status names the
// process that holds it, with its path; the detachment follows when the process
// ends or a retry forces it (Z24, S23).
func TestBusyDetach(t *testing.T) {
	w := start(t)
	const storage = "    storage: [{filesystem: www, path: /srv}, {filesystem: logs, path: /log}]\n"
	bare := strings.Replace(fmt.Sprintf(data, "ext4"), "    storage: [{filesystem: www, path: /srv}]\n", "", 1)
	bare = strings.Replace(bare, "type: ext4}", "type: ext4}, logs: {provider: rootfs, size: 16MiB}", 1)
	w.Apply("site", bare)
	pid := w.must("0", "/bin/busybox stat -c %Y /proc/1")
	file := w.File("site", bare+storage)
	if code, out := w.Exit("plan", "-f", file); code != 2 || !strings.Contains(out, "disk fs-www") || !strings.Contains(out, "live") {
		t.Errorf("plan (%d):\n%s", code, out)
	}
	w.Run("apply", "--allow", "destroy", "-f", file, "--wait")
	w.nothingToDo(file, "given to a running machine")
	w.must("0", "(exec 3>/srv/held; exec sleep 4711) >/dev/null 2>&1 </dev/null & echo $! > /tmp/holder")
	w.must("0", "(exec 3>/log/held; exec sleep 4712) >/dev/null 2>&1 </dev/null & echo $! > /tmp/logger")
	if out := w.Run("get", "attachments"); !strings.Contains(out, "/srv") {
		t.Errorf("attachments:\n%s", out)
	}

	w.Run("apply", "--allow", "destroy", "-f", w.File("site", bare))
	harness.Wait(t, "the holder's name", 30*time.Second, func() error {
		v, f := w.rows("volumes")["data"], w.rows("filesystems")["www"]
		if text := v.Message + f.Message; !strings.Contains(text, "sleep (pid ") || !strings.Contains(text, "held") {
			return fmt.Errorf("%+v\n%+v", v, f)
		}
		if logs := w.rows("filesystems")["logs"]; logs.Status != spec.StorageDetaching || !strings.Contains(logs.Message, "sleep (pid ") {
			return fmt.Errorf("%+v", logs)
		}
		return nil
	})
	v := w.rows("volumes")["data"]
	if v.Attempts > 3 {
		t.Errorf("tried %d times while it was held", v.Attempts)
	}
	w.must("0", "kill $(cat /tmp/holder)")
	harness.Wait(t, "the detachment", 10*time.Second, func() error {
		if v := w.rows("volumes")["data"]; v.Device != "" || v.Message != "" {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	w.Run("retry", "filesystem/logs", "--force")
	harness.Wait(t, "the detachment by force", 10*time.Second, func() error {
		if logs := w.rows("filesystems")["logs"]; logs.Status != spec.StorageDetached || logs.Message != "" {
			return fmt.Errorf("%+v", logs)
		}
		return nil
	})
	w.must("0", "kill -0 $(cat /tmp/logger) && kill $(cat /tmp/logger)")
	harness.Wait(t, "the end of the devices", 10*time.Second, func() error {
		if loops := harness.Loops(t, w.State()); len(loops) > 0 {
			return fmt.Errorf("left attached: %v", loops)
		}
		return nil
	})
	if now := w.must("0", "/bin/busybox stat -c %Y /proc/1"); now != pid {
		t.Error("the machine was started again meanwhile")
	}
	w.Run("delete", "declaration/site", "--wait")
	w.bare("")
}
