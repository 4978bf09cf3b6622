package conffiles

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"hostler/agent/spec"
)

// If an agent ended just after a file disappeared, the next agent waits before
// it counts the file's declaration as removed.
func TestNewReaderWaitsForMissingFiles(t *testing.T) {
	for name, from := range map[string]struct{ before, after string }{
		"all of a file":  {document("a"), ""},
		"a part of many": {document("a", "other"), document("other")},
	} {
		clock := time.Now()
		c := newConfd(t, func(o *Options) { o.Now = func() time.Time { return clock } })
		config := spec.DefaultConfig()
		config.Removals = spec.RemovalsObey
		if err := c.writeConfig(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		dir := c.o.Dir
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		read := func(r *folderReader) { t.Helper(); c.apply(t, r) }
		write := func(name, text string) {
			t.Helper()
			if text != "" {
				writeFile(t, filepath.Join(dir, name), text)
			} else if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		write("a.yaml", from.before)
		write("keep.yaml", document("keep"))
		first := c.newReader()
		read(first)
		before, _ := c.lives(t)
		// The machine moves to a file that cannot be parsed, then that file goes.
		write("b.yaml", "version: 1\nmachine: {}\n")
		write("a.yaml", from.after)
		for range 2 {
			read(first)
			clock = clock.Add(goneFor)
		}
		read(first)
		write("b.yaml", "")
		again := c.newReader()
		read(again)
		if alive, held := c.lives(t); len(alive) != len(before) || len(held) != 1 {
			t.Errorf("%s: machines %v, held %v", name, alive, held)
		}
		clock = clock.Add(goneFor)
		read(again)
		if alive, _ := c.lives(t); len(alive) != len(before)-1 || slices.Contains(alive, "a") {
			t.Errorf("%s: machines %v once the file stayed away", name, alive)
		}
	}
}

// The reason against something that is not a readable file says how to mend it.
func TestReasonsAgainstOddFiles(t *testing.T) {
	dir := t.TempDir()
	link, folder := filepath.Join(dir, "link.yaml"), filepath.Join(dir, "folder.yaml")
	if err := errors.Join(os.Symlink("/absent/x.yaml", link), os.Mkdir(folder, 0o755)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		link:   "it is a link to /absent/x.yaml, which does not exist; mend or remove the link",
		folder: "it is not a file; remove it, or give it a name without this ending",
	} {
		if _, err := readDeclaration(path); err == nil || err.Error() != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}
