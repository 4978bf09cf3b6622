package harness

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// RaiseLimits gives the kernel the limits that the agent would set for many
// containers, until the test ends: an agent started afterwards finds nothing
// to change on this machine.
func RaiseLimits(t testing.TB) {
	t.Helper()
	for path, want := range map[string]int{
		"/proc/sys/fs/inotify/max_user_instances": 16384,
		"/proc/sys/fs/inotify/max_user_watches":   1048576,
		"/proc/sys/kernel/keys/maxkeys":           20000,
		"/proc/sys/kernel/keys/maxbytes":          2000000,
	} {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if now, err := strconv.Atoi(strings.TrimSpace(string(before))); err != nil || now >= want {
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(want)), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(path, before, 0o644); err != nil {
				t.Errorf("cannot put back %s: %v", path, err)
			}
		})
	}
}

// keepHostLock takes the host lock's folder away at the end of the test where
// there was none before: it is one for all agents of a host.
func keepHostLock(t testing.TB) {
	t.Helper()
	const dir = "/run/hostler"
	if _, err := os.Stat(dir); err == nil {
		return
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir + "/lock"); err != nil {
			t.Errorf("cannot remove the host lock: %v", err)
		}
		_ = os.Remove(dir) // holds more where hostler is installed meanwhile
	})
}
