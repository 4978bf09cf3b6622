package harness

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"hostler/internal/hosttest"
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
		hosttest.Share(t, path, func() func(testing.TB) { return raise(t, path, want) })
	}
}

// raise raises a kernel parameter, and returns a function that puts it back.
func raise(t testing.TB, path string, want int) (restore func(testing.TB)) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := strconv.Atoi(strings.TrimSpace(string(before))); err != nil || now >= want {
		return func(testing.TB) {}
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(want)), 0o644); err != nil {
		t.Fatal(err)
	}
	return func(t testing.TB) {
		if err := os.WriteFile(path, before, 0o644); err != nil {
			t.Errorf("cannot put back %s: %v", path, err)
		}
	}
}

// KeepHostLock removes the lock files that the test's agents leave: all agents
// of a host share their folder, no matter which other folders they use.
func KeepHostLock(t testing.TB) {
	t.Helper()
	const dir = "/run/hostler"
	hosttest.Share(t, dir, func() func(testing.TB) {
		before := lockFiles(dir)
		return func(t testing.TB) {
			for path := range lockFiles(dir) {
				if before[path] {
					continue
				}
				if err := os.Remove(path); err != nil {
					t.Errorf("cannot remove a lock: %v", err)
				}
			}
			_ = os.Remove(dir + "/lock") // holds more if an earlier run was killed
			_ = os.Remove(dir)           // holds more if hostler is installed meanwhile
		}
	})
}

func lockFiles(dir string) map[string]bool {
	found := map[string]bool{}
	paths, _ := filepath.Glob(dir + "/lock/*")
	for _, path := range paths {
		found[path] = true
	}
	return found
}
