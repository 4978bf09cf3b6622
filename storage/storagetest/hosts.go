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

// Hosts are the types of host filesystems on which sources are shown.
var Hosts = []string{"ext4", "xfs", "btrfs", "tmpfs"}

// Dir is a folder for mounts: a daemon that copies the mount namespace while
// a test runs lets go of what was mounted below it when the test does.
func Dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	noError(t, mounts.Share(dir))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// Host mounts a fresh filesystem of that type and at least that size, in
// bytes, and returns its folder; it goes when the test ends. It is made by the
// host's own tools, not by the code that is tested.
func Host(t *testing.T, kind string, size int64) string {
	t.Helper()
	top := Dir(t)
	dir, image := filepath.Join(top, "host"), filepath.Join(top, "image")
	noError(t, os.Mkdir(dir, 0o700))
	if kind == "tmpfs" {
		tool(t, "/bin/mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", size), "host", dir)
	} else {
		// The least that mkfs takes, and room for what a filesystem needs.
		size = max(size, map[string]int64{"xfs": 320 * MiB, "btrfs": 256 * MiB}[kind])
		f, err := os.Create(image)
		noError(t, err)
		noError(t, f.Truncate(size))
		noError(t, f.Close())
		tool(t, "/sbin/mkfs."+kind, map[string]string{"ext4": "-q", "xfs": "-q", "btrfs": "-q"}[kind], image)
		tool(t, "/bin/mount", "-o", "loop", image, dir)
	}
	t.Cleanup(func() {
		// Whoever looks at the mount just now is gone soon.
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
