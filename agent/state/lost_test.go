package state_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hostler/agent/state"
	"hostler/internal/fault"
)

// Attack: store
func TestLostStores(t *testing.T) {
	t.Parallel()
	w := smallWorld(t)
	db := w.files["state.db"]
	other := newDamagedStore(t, false, func(l *state.Local) { fill(t, l, "o", 3) })
	empty := newDamagedStore(t, false, func(*state.Local) {})
	older := bytes.Clone(db)
	later := w.grow(t)
	for _, c := range []struct {
		name   string
		tamper func(path string) error
		reason string
		kept   bool // the records survive
	}{
		{"missing", os.Remove, "missing", false},
		{"zero length", func(p string) error { return os.Truncate(p, 0) }, "empty", false},
		{"garbage", func(p string) error { return os.WriteFile(p, bytes.Repeat([]byte("x"), 9000), 0o600) }, "not a database", false},
		{"shorter than a header", func(p string) error { return os.Truncate(p, 60) }, "shorter", false},
		{"another store", func(p string) error { return os.WriteFile(p, other.files["state.db"], 0o600) }, "another store's", false},
		{"an empty store", func(p string) error { return os.WriteFile(p, empty.files["state.db"], 0o600) }, "another store's", false},
		{"an older copy", func(p string) error { return os.WriteFile(p, older, 0o600) }, "older copy", false},
		{"a directory", func(p string) error { return replaceBy(p, func() error { return os.MkdirAll(p+"/x", 0o700) }) }, "regular file", false},
		{"a link", func(p string) error {
			return replaceBy(p, func() error { return os.Symlink("/etc/hostname", p) })
		}, "regular file", false},
		{"a dangling link", func(p string) error { return replaceBy(p, func() error { return os.Symlink("nowhere", p) }) }, "regular file", false},
		{"a fifo", func(p string) error { return replaceBy(p, func() error { return syscall.Mkfifo(p, 0o600) }) }, "regular file", false},
		{"another owner", func(p string) error { return os.Chown(p, 12345, 12345) }, "user 12345", false},
		{"written by others", func(p string) error { return os.Chmod(p, 0o660) }, "mode 0660", false},
		{"a fifo for the log", func(p string) error { return syscall.Mkfifo(p+"-wal", 0o600) }, "regular file", false},
		{"no identity", func(p string) error { return os.Remove(filepath.Dir(p) + "/store-id") }, "identity", true},
		{"a broken identity", func(p string) error { return os.Truncate(filepath.Dir(p)+"/store-id", 9) }, "identity", true},
		{"a directory as identity", func(p string) error {
			id := filepath.Dir(p) + "/store-id"
			return replaceBy(id, func() error { return os.Mkdir(id, 0o700) })
		}, "identity", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := later.put(t)
			if err := c.tamper(filepath.Join(dir, "state.db")); err != nil {
				t.Fatal(err)
			}
			whole, report := later.survive(t, c.name, dir)
			if whole != c.kept || !report.Rebuilt || !strings.Contains(report.Reason, c.reason) {
				t.Errorf("whole %v, %+v", whole, report)
			}
			if !c.kept && c.name != "missing" && !strings.HasPrefix(report.Quarantined, dir+"/quarantine/") {
				t.Errorf("quarantined %q", report.Quarantined)
			}
			if _, err := os.Stat(report.LastGood); report.LastGood == "" || err != nil {
				t.Errorf("last good copy %q: %v", report.LastGood, err)
			}
			// The loss is reported at the next open too, and after a crash.
			l, again := open(t, state.Options{Dir: dir})
			if !again.Rebuilt || again.Reason != report.Reason || again.Quarantined != "" {
				t.Errorf("at the next open: %+v", again)
			}
			if err := l.MarkComplete(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if _, settled := open(t, state.Options{Dir: dir}); settled.Rebuilt || settled.Fresh {
				t.Errorf("once settled: %+v", settled)
			}
		})
	}
}

// grow opens the world, changes it and closes it again.
func (w damagedStore) grow(t *testing.T) damagedStore {
	t.Helper()
	dir := w.put(t)
	l, report := open(t, state.Options{Dir: dir})
	if report.Rebuilt || report.Fresh {
		t.Fatalf("report %+v", report)
	}
	fill(t, l, "later", 2)
	later := damagedStore{objects: contents(t, l)}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	later.files = readDir(t, dir)
	return later
}

func replaceBy(path string, instead func() error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return instead()
}

// The agent is killed, not closed, and an older copy restored: the generation
// is the same, but the mark is ahead of the copy.
// Attack: store
func TestOlderCopyAfterKillIsNoticed(t *testing.T) {
	var older []byte
	w := newDamagedStore(t, true, func(l *state.Local) {
		fill(t, l, "a", 3)
		older = readDir(t, l.Dir())["state.db"]
		fill(t, l, "b", 3)
	})
	dir := w.put(t)
	w.reset(t, dir, older)
	if err := os.RemoveAll(filepath.Join(dir, "state.db-wal")); err != nil {
		t.Fatal(err)
	}
	if whole, report := w.survive(t, "older copy", dir); whole || !report.Rebuilt {
		t.Errorf("whole %v, %+v", whole, report)
	}
}

func TestNewerSchemaIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := smallWorld(t)
	dir := w.put(t)
	b := bytes.Clone(w.files["state.db"])
	binary.BigEndian.PutUint32(b[60:], 99)
	w.reset(t, dir, b)
	before := readDir(t, dir)
	_, _, err := state.Open(t.Context(), state.Options{Dir: dir})
	if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "schema 99") {
		t.Fatalf("got %v", err)
	}
	after := readDir(t, dir)
	if len(after) != len(before) {
		t.Errorf("files before %d, after %d", len(before), len(after))
	}
	for name := range before {
		if !bytes.Equal(before[name], after[name]) {
			t.Errorf("%s was changed", name)
		}
	}
}

func TestReadOnlyFileModeIsRepaired(t *testing.T) {
	w := smallWorld(t)
	for _, mode := range []os.FileMode{0o644, 0o400, 0} {
		dir := w.put(t)
		path := filepath.Join(dir, "state.db")
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if whole, report := w.survive(t, mode.String(), dir); !whole || report.Rebuilt {
			t.Errorf("mode %v: whole %v, %+v", mode, whole, report)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("mode %v became %v, %v", mode, info.Mode(), err)
		}
	}
}

// A copy that the operator restores on purpose is opened with its records and
// reported as Rebuilt.
func TestCopyPutBackOnPurpose(t *testing.T) {
	w := smallWorld(t)
	dir := w.put(t)
	for _, name := range []string{"store-id", "store-mark", "state.db"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(dir, "state.db.last-good"), filepath.Join(dir, "state.db")); err != nil {
		t.Fatal(err)
	}
	if whole, report := w.survive(t, "put back", dir); !whole || !report.Rebuilt || report.Quarantined != "" {
		t.Errorf("whole %v, %+v", whole, report)
	}
}

func TestQuarantineIsBounded(t *testing.T) {
	t.Parallel()
	w := smallWorld(t)
	dir := w.put(t)
	for range 8 {
		if err := os.WriteFile(filepath.Join(dir, "state.db"), []byte("gone"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.survive(t, "lost again", dir)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "quarantine"))
	if err != nil {
		t.Fatal(err)
	}
	stores := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "-state.db") {
			stores++
		}
	}
	if stores != 5 {
		t.Errorf("%d stores in the quarantine: %v", stores, entries)
	}
}
