//go:build integration

package lxc_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// A filesystem that an administrator mounted below an instance's files keeps its
// files, also if it is the same as theirs: the deletion is refused while the
// instance still runs, and no removal in the background goes into it.
func TestDeletionSparesMounts(t *testing.T) {
	w := newWorld(t)
	data := t.TempDir()
	must(t, os.WriteFile(data+"/file", nil, 0o600))
	mount := func(on string) (unmount func()) {
		host(t, "mount", "--bind", data, on)
		t.Cleanup(func() { // a rename of the files moves the mount
			host(t, "sh", "-c", "grep -o ' "+w.path+"/[^ ]*/mnt ' /proc/mounts | xargs -r umount")
		})
		return func() { host(t, "umount", on) }
	}
	spared := func(on string, err error) {
		t.Helper()
		if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "umount "+on) {
			t.Errorf("with a mount on %s: %v", on, err)
		}
		if _, err := os.Stat(data + "/file"); err != nil {
			t.Fatalf("with a mount on %s: %v", on, err)
		}
	}
	w.makeForeign(t, "old")
	old, made := w.machine(t, "old"), w.machine(t, "made")
	must(t, w.d.Stamp(t.Context(), "old", nil, old.Stamp))
	must(t, w.d.SetPower(t.Context(), "old", containerbroker.PowerStart, 0))
	w.start(t, made)
	for m, on := range map[*containerbroker.Machine]string{&old: w.path + "/old/rootfs/mnt", &made: w.path + "/.hostler/pool/guests/" + made.Stamp.Token + "/mnt"} {
		unmount := mount(on)
		spared(on, w.d.Delete(t.Context(), m.Name, m.Stamp))
		if now := find(t, w.d, m.Name); now.Status != containerbroker.StatusRunning {
			t.Errorf("%s is %s", m.Name, now.Status)
		}
		unmount()
		must(t, w.d.Delete(t.Context(), m.Name, m.Stamp))
	}

	gone := filepath.Join(w.path, ".hostler/removed/gone-1-x")
	must(t, os.MkdirAll(gone+"/rootfs/mnt", 0o700))
	must(t, os.WriteFile(gone+"/config", nil, 0o600))
	unmount := mount(gone + "/rootfs/mnt")
	_, _, err := w.d.MoveLeftovers(t.Context())
	spared(gone+"/rootfs/mnt", err)
	must(t, os.Remove(gone+"/config")) // now only its logs are thought to be there
	w.d = w.impatient(0)               // it keeps no logs
	_, _, err = w.d.MoveLeftovers(t.Context())
	must(t, err)
	if _, err := os.Stat(data + "/file"); err != nil {
		t.Error(err)
	}
	unmount()
}

// After a power cut a machine in a pool of folders either is not there or has all
// its files. A copy of the filesystem's device is what a power cut leaves.
func TestPowerCutAfterACreation(t *testing.T) {
	r := newRig(t, false)
	pool, device, cut := r.path+"/.hostler/pool", r.folder.Dir+"/device", ""
	must(t, os.MkdirAll(pool, 0o711))
	must(t, os.Chmod(filepath.Dir(pool), 0o711))
	host(t, "truncate", "-s", "256M", device)
	host(t, "mkfs.ext4", "-q", device)
	host(t, "mount", "-o", "loop", device, pool)
	t.Cleanup(func() { host(t, "umount", pool) })
	w := &world{rig: r, d: r.broker("hostler")}
	var err error
	w.id, err = w.d.EnsureImage(t.Context(), image, nil)
	must(t, err)
	w.d.BeforeRename(func() {
		cut = t.TempDir()
		host(t, "cp", "--sparse=always", device, cut+"/device")
	})
	m := w.machine(t, "cut")
	must(t, w.d.Create(t.Context(), m, nil))
	after := cut + "/after"
	must(t, os.Mkdir(after, 0o700))
	host(t, "mount", "-o", "loop", cut+"/device", after)
	t.Cleanup(func() { host(t, "umount", after) })
	root := "/guests/" + m.Stamp.Token
	host(t, "diff", "-rq", "--no-dereference", pool+root, after+root)
}

// An image whose deletion stops half-way is no image any more, and its files go
// with the leftovers.
func TestInterruptedDeletionOfAnImage(t *testing.T) {
	r := newRig(t, false)
	d := r.broker("hostler")
	id, err := d.EnsureImage(t.Context(), image, nil)
	must(t, err)
	images := r.path + "/.hostler/pool/images/"
	host(t, "chattr", "+i", images+id+"/usr/sbin")
	free := func() { host(t, "sh", "-c", "chattr -f -i "+images+"*/usr/sbin "+images+".*/usr/sbin || true") }
	t.Cleanup(free)
	if err := d.DeleteImage(t.Context(), id); err == nil {
		t.Fatal("it was deleted")
	}
	if all, err := d.ListImages(t.Context()); len(all) > 0 || err != nil {
		t.Errorf("listed: %+v, %v", all, err)
	}
	_, err = d.EnsureImage(t.Context(), image, nil)
	must(t, err)
	if _, err := os.Lstat(images + id + "/bin"); err != nil {
		t.Errorf("unpacked again: %v", err)
	}
	free()
	_, _, err = d.MoveLeftovers(t.Context())
	must(t, err)
	if left, _ := filepath.Glob(images + ".*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A guest can make its files read-only, in subvolumes and below a path that is too
// long for the kernel. Its deletion removes them all the same.
// Attack: guests
func TestDeletionOfStubbornSubvolumes(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "stubborn")
	must(t, w.d.Create(t.Context(), m, nil))
	root := filepath.Join(w.path, ".hostler/pool/guests", m.Stamp.Token)
	for _, sub := range []string{"/inner", "/inner/deeper", "/far"} {
		host(t, "btrfs", "-q", "subvolume", "create", root+sub)
	}
	far, err := os.OpenRoot(root)
	must(t, err)
	for range 25 {
		long := strings.Repeat("x", 200)
		must(t, far.Mkdir(long, 0o700))
		next, err := far.OpenRoot(long)
		must(t, errors.Join(err, far.Close()))
		far = next
	}
	at, err := far.Open(".")
	must(t, err)
	must(t, unix.Renameat(unix.AT_FDCWD, root+"/far", int(at.Fd()), "far"))
	must(t, errors.Join(at.Close(), far.Close()))
	for _, sub := range []string{"/inner/deeper", "/inner", ""} {
		host(t, "btrfs", "property", "set", root+sub, "ro", "true")
	}
	must(t, w.d.Delete(t.Context(), m.Name, m.Stamp))
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Leftovers that cannot be removed do not keep the others.
func TestLeftoversBesideStuckOnes(t *testing.T) {
	r := newRig(t, false)
	d := r.broker("hostler")
	_, err := d.EnsureImage(t.Context(), image, nil) // makes the folders
	must(t, err)
	own := r.path + "/.hostler/"
	stuck := []string{own + "making/a", own + "removed/a-1-x/rootfs", own + "pool/images/.a.dropped"}
	for _, dir := range append(stuck, own+"making/b", own+"removed/b-1-x/rootfs", own+"pool/images/.b.dropped", own+"pool/guests/lost") {
		must(t, os.MkdirAll(dir+"/sub", 0o700))
		if strings.Contains(dir, "removed") {
			must(t, os.WriteFile(dir+"/../config", nil, 0o600))
		}
	}
	host(t, append([]string{"chattr", "+i"}, stuck...)...)
	free := func() { host(t, append([]string{"chattr", "-f", "-i"}, stuck...)...) }
	t.Cleanup(func() { _ = exec.Command("chattr", append([]string{"-f", "-i"}, stuck...)...).Run() })
	places, more, err := d.MoveLeftovers(t.Context())
	for _, path := range stuck {
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%v says nothing of %s", err, path)
		}
	}
	if more || len(places) != 1 || !strings.Contains(places[0], "/lost-") {
		t.Errorf("%q, %v", places, more)
	}
	if left, _ := filepath.Glob(own + "[mrp]*/*/.b.*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	for _, dir := range []string{own + "making/b", own + "removed/b-1-x/config"} {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there", dir)
		}
	}
	free()
	_, _, err = d.MoveLeftovers(t.Context())
	must(t, err)
}
