//go:build integration

package lxc_test

import (
	"os"
	"testing"

	"hostler/containerbroker"
)

// A mount that a guest makes below a disk's folder stays in the guest, also if the
// host's folder is on a shared mount, as all are under systemd.
func TestMountsBelowADiskStayInTheGuest(t *testing.T) {
	w := newWorld(t)
	share := folder(t)
	host(t, "mount", "--bind", share, share)
	t.Cleanup(func() { host(t, "umount", "--recursive", share) })
	host(t, "mount", "--make-shared", share)
	must(t, os.Mkdir(share+"/inner", 0o777))
	must(t, os.Chmod(share, 0o777))
	m := w.machine(t, "mounts")
	w.start(t, m)
	m.Disks = []containerbroker.Disk{{Name: "fs-www", Source: share, Path: "/srv/www"}}
	w.apply(t, m)
	w.says(t, m.Name, "mount -t tmpfs none /srv/www/inner && grep -c ' /srv/www/inner ' /proc/mounts", "1")
	if found := host(t, "findmnt", "-rno", "TARGET", "-R", share); found != share {
		t.Errorf("the host has %s", found)
	}
}
