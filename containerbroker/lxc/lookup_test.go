package lxc

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// An instance whose config hostler does not read is nobody's, and the listing shows
// the others. A root filesystem that such a config may name is not set aside.
func TestUnreadableConfig(t *testing.T) {
	for name, c := range map[string]struct {
		put    func(path, target string) error
		spared bool // it is known to use no other root filesystem
	}{
		"link":          {func(p, target string) error { return os.Symlink(target, p) }, true},
		"dangling link": {func(p, target string) error { return os.Symlink(target+"x", p) }, false},
		"folder":        {func(p, _ string) error { return os.Mkdir(p, 0o700) }, false},
		"device":        {func(p, _ string) error { return unix.Mkfifo(p, 0o600) }, false},
		"large":         {func(p, _ string) error { return os.WriteFile(p, make([]byte, 1<<20), 0o600) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := New(Options{Path: t.TempDir(), Namespace: "hostler"})
			used, lost, target := d.pool(dirGuests, "used"), d.pool(dirGuests, "lost"), filepath.Join(t.TempDir(), "config")
			web, bad := d.instance("web"), d.instance("bad")
			for _, dir := range []string{used, lost, d.pool(dirPrivileged), d.own("making"), d.own("removed"), web, bad} {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.WriteFile(filepath.Join(web, fileConfig), nil, 0o600), noteOf("web").write(web),
				os.WriteFile(target, []byte("lxc.rootfs.path = dir:"+used+"\n"), 0o600), c.put(filepath.Join(bad, fileConfig), target), noteOf("bad").write(bad)); err != nil {
				t.Fatal(err)
			}
			all, err := d.List(t.Context(), true)
			if err != nil || len(all) != 2 || all[1].Stamp.Namespace != "hostler" {
				t.Fatalf("%+v, %v", all, err)
			}
			if i := all[0]; i.Status != containerbroker.StatusError || !i.Unreadable || i.Odd == "" || i.Stamp == nil || i.Stamp.Namespace == "hostler" {
				t.Errorf("it is listed as %+v", i)
			}
			if err := d.Delete(t.Context(), "bad", *noteOf("bad").stamp()); !fault.Is(err, fault.NeedsOperator) {
				t.Errorf("a deletion: %v", err)
			}
			cleared := d.clearRoots("lost")
			places, err := d.moveRoots()
			_, there := os.Lstat(used)
			if there != nil || c.spared != (err == nil) || c.spared != (cleared == nil) {
				t.Errorf("%q, %v, %v, %v", places, err, cleared, there)
			}
			if _, err := os.Lstat(lost); (err == nil) == c.spared {
				t.Errorf("the other root filesystem: %v", err)
			}
		})
	}
}

// An administrator has moved the folder of an instance to another disk, and LXC finds
// it by a link. The listing shows it, its root filesystem is not set aside, and
// nothing is changed through the link.
func TestLinkedFolder(t *testing.T) {
	d := New(Options{Path: t.TempDir(), Namespace: "hostler"})
	used, moved := d.pool(dirGuests, "used"), filepath.Join(t.TempDir(), "web")
	for _, dir := range []string{used, d.pool(dirPrivileged), d.own("making"), d.own("removed"), moved} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(moved, fileConfig), []byte("lxc.rootfs.path = dir:"+used+"\n"), 0o600), noteOf("web").write(moved),
		os.Symlink(moved, d.instance("web")), os.Symlink("/nowhere", d.instance("dangling")), os.Symlink(t.TempDir(), d.instance("empty"))); err != nil {
		t.Fatal(err)
	}
	all, err := d.List(t.Context(), true)
	if err != nil || len(all) != 1 || all[0].Name != "web" || !all[0].Unreadable || all[0].Odd == "" {
		t.Errorf("listed: %+v, %v", all, err)
	}
	if err := d.Delete(t.Context(), "web", *noteOf("web").stamp()); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("a deletion: %v", err)
	}
	if places, err := d.moveRoots(); len(places) > 0 || err != nil {
		t.Errorf("set aside: %q, %v", places, err)
	}
}
