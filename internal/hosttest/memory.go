package hosttest

import (
	"os"
	"syscall"
	"testing"
)

// enoughMemory is the free space, in bytes, from which MemoryDir uses a tmpfs. A
// container's /dev/shm may have only 64 MiB.
const enoughMemory = 48 << 20

// MemoryDir returns a directory in memory, which is removed when the test ends.
// It is for the stores of tests that do not test whether writes survive the
// host: there a sync costs nothing, while on a busy disk a test waits seconds
// for its syncs. On a host without a tmpfs at /dev/shm it returns t.TempDir().
func MemoryDir(t testing.TB) string {
	t.Helper()
	const memory = "/dev/shm"
	const tmpfs = 0x01021994 // TMPFS_MAGIC of linux/magic.h
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err != nil || fs.Type != tmpfs || fs.Bavail*uint64(fs.Bsize) < enoughMemory {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "test") //nolint:usetesting // t.TempDir is on a disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("cannot remove a directory in memory: %v", err)
		}
	})
	return dir
}
