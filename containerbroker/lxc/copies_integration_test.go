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

// A copy that LXC's own tools make as a snapshot shows the files of its original.
// Neither a deletion nor the look for leftovers takes them from the copy, in
// whatever folder it is and whoever made the original.
func TestCopiesKeepTheirOriginal(t *testing.T) {
	w := newWorld(t)
	w.makeForeign(t, "adopted")
	adopted, made := w.machine(t, "adopted"), w.machine(t, "made")
	must(t, w.d.Stamp(t.Context(), "adopted", nil, adopted.Stamp))
	must(t, w.d.Create(t.Context(), made, nil))
	other := filepath.Join(w.folder.Dir, "other")
	must(t, os.Mkdir(other, 0o711))
	for _, m := range []containerbroker.Machine{adopted, made} {
		for _, path := range []string{w.path, other} {
			// Names before and after the original's.
			for _, name := range []string{"a", "z"} {
				host(t, "lxc-copy", "-P", w.path, "-n", m.Name, "-N", name, "-p", path, "-s", "-B", "overlay")
				layers := value(read(t, filepath.Join(path, name, "config")), "lxc.rootfs.path")
				original := strings.Split(layers, ":")[1]
				err := w.d.Delete(t.Context(), m.Name, m.Stamp)
				if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "lxc-destroy -P "+path+" -n "+name) {
					t.Errorf("with the copy %s: %v", layers, err)
				}
				if _, _, err := w.d.MoveLeftovers(t.Context()); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(filepath.Join(original, "sbin/init")); err != nil {
					t.Errorf("the copy lost its files: %v", err)
				}
				host(t, "lxc-destroy", "-P", path, "-n", name)
				must(t, os.Remove("/run/lxc/lock"+path+"/."+name)) // liblxc leaves it
			}
		}
		must(t, w.d.Delete(t.Context(), m.Name, m.Stamp))
	}
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A deletion keeps the snapshots that LXC's own tools made of an instance, and the
// instance, until the administrator has deleted the snapshots.
func TestSnapshotsAreNotDeleted(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "made")
	must(t, w.d.Create(t.Context(), m, nil))
	host(t, "lxc-snapshot", "-P", w.path, "-n", m.Name)
	err := w.d.Delete(t.Context(), m.Name, m.Stamp)
	destroy := "lxc-snapshot -P " + w.path + " -n " + m.Name + " -d ALL"
	if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), destroy) {
		t.Errorf("with a snapshot: %v", err)
	}
	if _, err := os.Stat(filepath.Join(w.path, m.Name, "snaps/snap0/config")); err != nil {
		t.Error(err)
	}
	host(t, strings.Fields(destroy)...)
	must(t, w.d.Delete(t.Context(), m.Name, m.Stamp))
}

// value returns the value of a key of a config.
func value(config, key string) string {
	for line := range strings.Lines(config) {
		if found, v, is := strings.Cut(line, "="); is && strings.TrimSpace(found) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
