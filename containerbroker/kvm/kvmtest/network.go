package kvmtest

import (
	"os"
	"syscall"
	"testing"

	"hostler/internal/hosttest"
)

// keepDevice restores the owner and mode of /dev/kvm when the test ends,
// because the initialiser gives the device to QEMU's group if udev does not
// run.
func keepDevice(t testing.TB) {
	t.Helper()
	const device = "/dev/kvm"
	hosttest.Share(t, device, func() func(testing.TB) {
		info, err := os.Stat(device)
		if err != nil {
			return func(testing.TB) {}
		}
		owner := info.Sys().(*syscall.Stat_t)
		return func(testing.TB) {
			_ = os.Chown(device, int(owner.Uid), int(owner.Gid))
			_ = os.Chmod(device, info.Mode().Perm())
		}
	})
}

// keepFolders makes those of libvirt's folders that are missing. It removes
// them only when the last server ends, because every server mounts its own
// folders over them.
func keepFolders(t testing.TB) {
	t.Helper()
	hosttest.Share(t, "libvirt's folders", func() func(testing.TB) {
		var made []string
		for _, folder := range folders {
			if _, err := os.Stat(folder); err != nil {
				check(t, "make "+folder, os.MkdirAll(folder, 0o755))
				made = append(made, folder)
			}
		}
		return func(testing.TB) {
			for _, folder := range made {
				_ = os.Remove(folder)
			}
		}
	})
}
