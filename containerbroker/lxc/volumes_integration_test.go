//go:build integration

package lxc_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
