package storagetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/run"
	"hostler/storage/mounts"
)

// Hosts are the types of host filesystems on which sources are tested.
var Hosts = []string{"ext4", "xfs", "btrfs", "tmpfs"}

// Dir is a shared directory for mounts: if a daemon copies the mount namespace
// while a test runs, unmounts below it propagate to the daemon too.
func Dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	noError(t, mounts.Share(dir))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// Host mounts a new filesystem of that type and at least that size, in bytes,
// and returns its directory until the test ends. It uses the host's own tools,
// not the tested code.
func Host(t *testing.T, kind string, size int64) string {
	t.Helper()
	top := Dir(t)
	dir, image := filepath.Join(top, "host"), filepath.Join(top, "image")
	noError(t, os.Mkdir(dir, 0o700))
	if kind == "tmpfs" {
		tool(t, "/bin/mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", size), "host", dir)
	} else {
		// At least the minimum of mkfs, including the filesystem's own tables.
		size = max(size, map[string]int64{"xfs": 320 * MiB, "btrfs": 256 * MiB}[kind])
		f, err := os.Create(image)
		noError(t, err)
		noError(t, f.Truncate(size))
		noError(t, f.Close())
		tool(t, "/sbin/mkfs."+kind, map[string]string{"ext4": "-q", "xfs": "-q", "btrfs": "-q"}[kind], image)
		tool(t, "/bin/mount", "-o", "loop", image, dir)
	}
	t.Cleanup(func() {
		// Short-lived users of the mount, e.g. udev, are waited for.
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			_, err := run.Host{}.Run(context.Background(), run.Command{Path: "/bin/umount", Args: []string{dir}})
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("cleaning up: %v", err)
				return
			}
		}
	})
	return dir
}

func tool(t *testing.T, path string, args ...string) {
	t.Helper()
	_, err := run.Host{}.Run(t.Context(), run.Command{Path: path, Args: args})
	noError(t, err)
}
