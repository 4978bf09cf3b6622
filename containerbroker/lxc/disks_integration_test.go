//go:build integration

package lxc_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/run"
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

// The guest's root cannot make a read-only filesystem writable, which came before
// its init or while it runs, also if something is mounted below it on the host.
func TestReadOnlyFilesystemStaysReadOnly(t *testing.T) {
	for _, privileged := range []bool{false, true} {
		t.Run(map[bool]string{true: "privileged", false: "unprivileged"}[privileged], func(t *testing.T) {
			w := newWorld(t)
			share := folder(t)
			for _, point := range []string{share, share + "/inner"} {
				host(t, "mount", "-t", "tmpfs", "none", point)
				t.Cleanup(func() { host(t, "umount", point) })
				must(t, os.Chmod(point, 0o777))
				must(t, os.Mkdir(point+"/inner", 0o777))
			}
			if !privileged {
				share = w.view(t, share)
			}
			m := w.machine(t, "reader")
			m.Privileged = privileged
			m.Disks = []containerbroker.Disk{{Name: "fs-early", Source: share, Path: "/srv/early", ReadOnly: true}}
			w.start(t, m)
			m.Disks = append(m.Disks, containerbroker.Disk{Name: "fs-late", Source: share, Path: "/srv/late", ReadOnly: true})
			w.apply(t, m)
			if changes := w.d.Diff(m, find(t, w.d, m.Name)); len(changes) != 0 {
				t.Errorf("it differs: %+v", changes)
			}
			for _, path := range []string{"/srv/early", "/srv/late"} {
				for _, how := range []string{"remount,rw", "remount,bind,rw"} {
					if out, code := w.inside(t, m.Name, "mount -o "+how+" "+path+"; touch "+path+"/file"); code == 0 {
						t.Errorf("%s: %s made it writable: %s", path, how, out)
					}
				}
			}
			m.Disks = nil
			w.apply(t, m)
			w.says(t, m.Name, "grep -c ' /srv/' /proc/mounts", "0")
		})
	}
}

// view mounts a folder read-only with the guests' ids, and returns the path.
func (w *world) view(t *testing.T, source string) string {
	t.Helper()
	path := t.TempDir()
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	must(t, err)
	defer func() { must(t, unix.Close(tree)) }()
	ids := run.UserNamespace{FirstUser: int(w.ids.FirstUser), Users: int(w.ids.Count), FirstGroup: int(w.ids.FirstGroup), Groups: int(w.ids.Count)}
	must(t, ids.Hold(t.Context(), run.Host{}, func(pid int) error {
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
		if err != nil {
			return err
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY, Userns_fd: uint64(ns.Fd())}
		return errors.Join(unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr), ns.Close())
	}))
	must(t, unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH))
	t.Cleanup(func() { host(t, "umount", path) })
	return path
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

// A disk below another one's folder is seen there, whatever their names and whichever comes
// first. No mount is left beneath the other, where it would keep the storage in use.
func TestDisksBelowOthersAreSeen(t *testing.T) {
	w := newWorld(t)
	disk := func(name string) func(path string) containerbroker.Disk {
		share := folder(t)
		must(t, os.Chmod(share, 0o777))
		must(t, os.WriteFile(share+"/"+name, nil, 0o644))
		return func(path string) containerbroker.Disk {
			return containerbroker.Disk{Name: "fs-" + name, Source: share, Path: path}
		}
	}
	a, b := disk("a"), disk("b")
	m := w.machine(t, "nested")
	m.Disks = []containerbroker.Disk{a("/srv/out/in"), b("/srv/out")}
	w.start(t, m)
	sees := func(out, in string) {
		t.Helper()
		w.says(t, m.Name, "ls -d /srv/out/? /srv/out/in/? 2>/dev/null", strings.TrimSpace(out+"\n"+in))
		w.says(t, m.Name, "grep -c ' /srv/' /proc/mounts", fmt.Sprint(len(m.Disks)))
		if changes := w.d.Diff(m, find(t, w.d, m.Name)); len(changes) != 0 {
			t.Errorf("it differs: %+v", changes)
		}
	}
	sees("/srv/out/b", "/srv/out/in/a")
	for _, next := range []struct {
		disks   []containerbroker.Disk
		out, in string
	}{
		{[]containerbroker.Disk{a("/srv/out"), b("/srv/out/in")}, "/srv/out/a", "/srv/out/in/b"},
		{[]containerbroker.Disk{a("/srv/out/in"), b("/srv/out")}, "/srv/out/b", "/srv/out/in/a"},
		{[]containerbroker.Disk{a("/srv/out/in")}, "", "/srv/out/in/a"},
		{[]containerbroker.Disk{a("/srv/out/in"), b("/srv/out")}, "/srv/out/b", "/srv/out/in/a"},
		{[]containerbroker.Disk{b("/srv/out")}, "/srv/out/b", ""},
		{nil, "", ""},
	} {
		m.Disks = next.disks
		w.apply(t, m)
		sees(next.out, next.in)
	}
}

// A disk that cannot be plugged leaves the others where they are, or the guest would write
// below their mount points.
func TestADiskThatFailsLeavesTheOthers(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "failing")
	disk := func(name, path string) containerbroker.Disk {
		share := folder(t)
		must(t, os.Chmod(share, 0o777))
		return containerbroker.Disk{Name: "fs-" + name, Source: share, Path: path}
	}
	outer, inner := disk("outer", "/srv/out"), disk("inner", "/srv/out/in")
	m.Disks = []containerbroker.Disk{outer, inner}
	w.start(t, m)
	outer = disk("outer", outer.Path) // another folder
	m.Disks = []containerbroker.Disk{outer, inner, disk("never", "/bin/busybox/in")}
	for range 2 {
		if err := w.d.Update(t.Context(), m, w.d.Diff(m, find(t, w.d, m.Name))); err == nil {
			t.Error("a disk came below a file")
		}
		w.says(t, m.Name, "grep -c ' /srv/' /proc/mounts", "2")
	}
}

// What the guest's init starts first finds the disks, also after a reboot from inside.
func TestDisksAreThereBeforeInit(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "early")
	share := folder(t)
	must(t, os.WriteFile(share+"/file", nil, 0o644))
	must(t, os.Chmod(share, 0o755))
	m.Disks = []containerbroker.Disk{{Name: "fs-www", Source: share, Path: "/srv/www"}, {Name: "vol-data", Source: brokertest.Device(t), Device: "/dev/data"}}
	must(t, w.d.Create(t.Context(), m, nil))
	root := filepath.Join(w.path, ".hostler/pool/guests", m.Stamp.Token)
	must(t, os.Rename(root+"/sbin/init", root+"/sbin/init-after"))
	init := "#!/bin/sh\n{ ls /srv/www; head -c 1 /dev/data | wc -c; echo end; } >/seen 2>&1\nexec /bin/busybox init\n"
	must(t, os.WriteFile(root+"/sbin/init", []byte(init), 0o755))
	must(t, os.WriteFile(root+"/seen", nil, 0o666))
	must(t, os.Chmod(root+"/seen", 0o666))
	for range 5 {
		must(t, os.Truncate(root+"/seen", 0))
		must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
		within(t, "its init does not run", func() bool { return strings.HasSuffix(read(t, root+"/seen"), "end\n") })
		if seen := read(t, root+"/seen"); seen != "file\n1\nend\n" {
			t.Errorf("its init saw %q", seen)
		}
		must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStop, 0))
	}
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	w.says(t, m.Name, "grep -c ' /srv/www ' /proc/mounts", "1")
	must(t, os.Truncate(root+"/seen", 0))
	w.inside(t, m.Name, "reboot -f")
	within(t, "it did not reboot", func() bool {
		now := find(t, w.d, m.Name)
		return now.Status == containerbroker.StatusStopped || strings.HasSuffix(read(t, root+"/seen"), "end\n")
	})
	if seen := read(t, root+"/seen"); seen != "" {
		t.Errorf("after a reboot from inside its init saw %q", seen)
	}
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStop, 0))
	must(t, os.Remove(share+"/file"))
	must(t, os.Remove(share))
	if err := w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0); err == nil || find(t, w.d, m.Name).Status != containerbroker.StatusStopped {
		t.Errorf("without its folder it started: %v", err)
	}
}
