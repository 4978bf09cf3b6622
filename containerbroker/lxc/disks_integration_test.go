//go:build integration

package lxc_test

import (
	"os"
	"strings"
	"testing"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
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

// Device rules that an administrator added stay, also if they are those of a disk.
// Those of hostler's disks come and go with the disks.
func TestDeviceRulesOfOthersStay(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "rules")
	must(t, w.d.Create(t.Context(), m, nil))
	config := w.path + "/rules/config"
	known, own := brokertest.Device(t), brokertest.Device(t)
	key, text := "lxc.cgroup", read(t, config)
	if strings.Contains(text, "lxc.cgroup2.devices") {
		key = "lxc.cgroup2"
	}
	rule := func(device string) string {
		return key + ".devices.allow = b " + host(t, "lsblk", "-dnro", "MAJ:MIN", device) + " rwm\n"
	}
	text += key + ".devices.allow = b 8:16 rwm\n" + rule(known)
	must(t, os.WriteFile(config, []byte(text), 0o600))
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	if now := read(t, config); now != text {
		t.Errorf("a start made its config\n%s", now)
	}
	m.Disks = []containerbroker.Disk{{Name: "vol-known", Source: known, Device: "/dev/known"}, {Name: "vol-own", Source: own, Device: "/dev/own"}}
	w.apply(t, m)
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, 0))
	w.says(t, m.Name, "head -c 1 /dev/known | wc -c; head -c 1 /dev/own | wc -c", "1\n1")
	if now := read(t, config); !strings.HasPrefix(now, text) || strings.Count(now, rule(known)) != 1 || strings.Count(now, rule(own)) != 1 {
		t.Errorf("with disks its config is\n%s", now)
	}
	m.Disks = nil
	w.apply(t, m)
	if now := read(t, config); now != text {
		t.Errorf("without disks its config is\n%s", now)
	}
}
