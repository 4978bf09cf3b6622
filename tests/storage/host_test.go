//go:build integration

package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// What machines write cannot act on the host: its mounts are nosuid and nodev,
// and get that back while they are used. The machine's own setuid programs work
// in the machine. The device below a filesystem is given to no machine.
// Attack: guests
func TestMachinesFilesAreHarmlessToTheHost(t *testing.T) {
	w := start(t)
	file := w.File("storage", example(t))
	w.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "3m")
	running := w.must("0", "/bin/busybox stat -c %Y /proc/1")
	// options are those of the mount at a path in a table of mounts.
	options := func(table, path string) []string {
		for line := range strings.Lines(table) {
			if f := strings.Fields(line); len(f) > 5 && f[4] == path {
				return strings.Split(f[5], ",")
			}
		}
		t.Fatalf("nothing is mounted on %s", path)
		return nil
	}
	restricted := func(name string) error {
		table, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		at := options(string(table), filepath.Join(w.State(), "mounts", "host", name))
		if !slices.Contains(at, "nosuid") || !slices.Contains(at, "nodev") {
			return fmt.Errorf("the host has %s mounted with %v", name, at)
		}
		return nil
	}
	names := map[string]string{"www": "/srv", "scratch": "/scratch", "logs": "/var/log/app"}
	inside := w.must("0", "cat /proc/self/mountinfo")
	for name, path := range names {
		if err := restricted(name); err != nil {
			t.Error(err)
		}
		if at := options(inside, path); slices.Contains(at, "nosuid") || !slices.Contains(at, "nodev") {
			t.Errorf("the machine has %s mounted with %v", path, at)
		}
	}

	// As an earlier version left them.
	w.Kill()
	for name := range names {
		harness.Run(t, "mount", "-o", "remount,bind,suid,dev", filepath.Join(w.State(), "mounts", "host", name))
		if restricted(name) == nil {
			t.Fatalf("%s is restricted still", name)
		}
	}
	w.Start()
	for name := range names {
		harness.Wait(t, "the restriction of "+name, 30*time.Second, func() error { return restricted(name) })
	}
	if now := w.must("0", "echo on >/srv/file && /bin/busybox stat -c %Y /proc/1"); now != running {
		t.Error("the machine was started again meanwhile")
	}
	w.nothingToDo(file, "after the restriction")

	both := w.File("storage", strings.Replace(example(t), "- {volume: raw}", "- {volume: data, read-only: true}", 1))
	code, out := w.Exit("apply", "--allow", "destroy", "-f", both)
	if code != 1 || !strings.Contains(out, `filesystem "www" is made on the volume "data" (line 11)`) {
		t.Errorf("the device below a filesystem: %d, %s", code, out)
	}
	w.Run("delete", "declaration/storage", "--wait")
}
