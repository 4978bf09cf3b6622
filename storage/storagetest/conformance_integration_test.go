//go:build integration

package storagetest_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/internal/run"
	"hostler/storage"
	"hostler/storage/loop"
	"hostler/storage/managedfs"
	"hostler/storage/rootfs"
	"hostler/storage/storagetest"
	"hostler/storage/tmpfs"
)

const mib = storagetest.MiB

// Each order of calls makes and mounts real filesystems, so fewer orders are
// tried.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// mayResize asks the kernel whether this process may grow a mounted ext4.
func mayResize(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// stay keeps a directory busy with a separate process.
func stay(t *testing.T, path string) func() {
	t.Helper()
	holder := exec.Command("/bin/sleep", "600")
	holder.Dir = path
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	release := func() { _, _ = holder.Process.Kill(), holder.Wait() }
	t.Cleanup(release)
	return release
}

func params(r storage.Ref) storage.FilesystemParams {
	return storage.FilesystemParams{Ref: r, Size: 16 * mib}
}

func TestTmpfs(t *testing.T) {
	for _, host := range storagetest.Hosts {
		t.Run(host, func(t *testing.T) {
			dir := storagetest.Host(t, host, 16*mib)
			source := func(namespace string) storage.FilesystemSource {
				return tmpfs.New(tmpfs.Options{Dir: filepath.Join(dir, "tmpfs"), Namespace: namespace})
			}
			storagetest.RunFilesystems(t, storagetest.FilesystemHarness{
				Source: source("one"), Other: source("two"), Namespace: "one", OtherNamespace: "two",
				Params: func(_ *testing.T, r storage.Ref) storage.FilesystemParams { return params(r) },
				Grow:   func(*testing.T, storage.Ref) int64 { return 24 * mib },
				Real:   true, Mounts: filepath.Join(dir, "mounts"), Use: stay,
			})
			empty(t, filepath.Join(dir, "tmpfs"))
			empty(t, filepath.Join(dir, "mounts"))
		})
	}
}

func TestRootfs(t *testing.T) {
	for _, host := range storagetest.Hosts {
		t.Run(host, func(t *testing.T) {
			dir := storagetest.Host(t, host, 256*mib)
			source := func(namespace string) storage.FilesystemSource {
				return rootfs.New(rootfs.Options{
					Dir:         filepath.Join(dir, "first"),
					Volumes:     loop.New(loop.Options{Dir: filepath.Join(dir, "volumes"), Namespace: namespace}),
					Filesystems: managedfs.New(managedfs.Options{Dir: filepath.Join(dir, "records"), Namespace: namespace, Runner: run.Host{}}),
				})
			}
			storagetest.RunFilesystems(t, storagetest.FilesystemHarness{
				Source: source("one"), Other: source("two"), Namespace: "one", OtherNamespace: "two",
				Params: func(_ *testing.T, r storage.Ref) storage.FilesystemParams { return params(r) },
				Grow:   func(*testing.T, storage.Ref) int64 { return 48 * mib },
				Real:   true, Kept: true, GrowsUnmounted: !mayResize(t), Mounts: filepath.Join(dir, "mounts"), Use: stay,
			})
			for _, name := range []string{"first", "volumes", "records", "mounts"} {
				empty(t, filepath.Join(dir, name))
			}
		})
	}
}

func TestManagedfs(t *testing.T) {
	for kind, size := range map[string]int64{"ext4": 16 * mib, "xfs": 300 * mib, "btrfs": 240 * mib} {
		for _, host := range storagetest.Hosts {
			t.Run(kind+" on "+host, func(t *testing.T) {
				managed(t, kind, host, size)
			})
		}
	}
}

func managed(t *testing.T, kind, host string, size int64) {
	dir := storagetest.Host(t, host, 512*mib)
	volumes := loop.New(loop.Options{Dir: filepath.Join(dir, "volumes"), Namespace: "one"})
	source := func(namespace string) storage.FilesystemSource {
		return managedfs.New(managedfs.Options{Dir: filepath.Join(dir, "records"), Namespace: namespace, Runner: run.Host{}})
	}
	device := func(t *testing.T, r storage.Ref) string {
		t.Helper()
		a := volumes.Attach(t.Context(), []storage.VolumeAttachParams{{Ref: r}})[0]
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		return a.Value.Device
	}
	storagetest.RunFilesystems(t, storagetest.FilesystemHarness{
		Source: source("one"), Other: source("two"), Namespace: "one", OtherNamespace: "two",
		Params: func(t *testing.T, r storage.Ref) storage.FilesystemParams {
			t.Helper()
			if err := volumes.Create(t.Context(), []storage.VolumeParams{{Ref: r, Size: size, Sparse: true}})[0].Err; err != nil {
				t.Fatal(err)
			}
			return storage.FilesystemParams{Ref: r, Type: kind, Device: device(t, r)}
		},
		Device: device,
		Grow: func(t *testing.T, r storage.Ref) int64 {
			t.Helper()
			got := volumes.GrowVolumes(t.Context(), []storage.GrowParams{{Ref: r, Size: size + 32*mib}})[0]
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			return got.Value.Size
		},
		Release: func(t *testing.T, r storage.Ref) {
			t.Helper()
			if err := volumes.Detach(context.Background(), []storage.DetachParams{{Ref: r}})[0]; err != nil {
				t.Error(err)
			}
			if err := volumes.Destroy(context.Background(), []storage.Ref{r})[0]; err != nil {
				t.Error(err)
			}
		},
		Real: true, Kept: true, GrowsUnmounted: kind == "ext4" && !mayResize(t), Mounts: filepath.Join(dir, "mounts"), Use: stay,
	})
	for _, name := range []string{"volumes", "records", "mounts"} {
		empty(t, filepath.Join(dir, name))
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%s holds %v", dir, left)
	}
}
