package lxc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/internal/fault"
)

// The folder of instances is opened to guests unless that opens an instance that
// hostler did not make. Its other rights stay.
func TestFolderOfInstancesIsOpened(t *testing.T) {
	for name, c := range map[string]struct {
		mode, instance, want os.FileMode
		noted                bool
		refused              bool
	}{
		"open":                     {0o755, 0o755, 0o755, false, false},
		"closed instance":          {0o700, 0o770, 0o701, false, false},
		"for a group":              {0o750 | os.ModeSetgid, 0o770, 0o751 | os.ModeSetgid, false, false},
		"open instance":            {0o700, 0o755, 0o700, false, true},
		"open instance of hostler": {0o700, 0o711, 0o701, true, false},
	} {
		path := t.TempDir()
		d := New(Options{Path: path, Namespace: "hostler"})
		instance := filepath.Join(path, "web")
		err := errors.Join(os.Mkdir(instance, 0o700), os.Chmod(instance, c.instance), os.Mkdir(filepath.Join(path, ".other"), 0o711), os.Chmod(path, c.mode))
		if c.noted {
			err = errors.Join(err, noteOf("web").write(instance))
		}
		if err != nil {
			t.Fatal(err)
		}
		err = d.openPath()
		if fault.Is(err, fault.NeedsOperator) != c.refused || (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
		if c.refused && !strings.Contains(err.Error(), "chmod o-x "+instance) {
			t.Errorf("%s: %v names no remedy", name, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode()&^os.ModeDir != c.want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, c.want)
		}
	}
}

func TestFolderOfInstancesIsMade(t *testing.T) {
	d := New(Options{Path: filepath.Join(t.TempDir(), "lxc"), Namespace: "hostler"})
	for range 2 {
		if err := d.openPath(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(d.opts.Path); err != nil || info.Mode().Perm()&0o001 == 0 {
		t.Errorf("%v, %v", info, err)
	}
}
