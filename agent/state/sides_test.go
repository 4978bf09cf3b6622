package state

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Where SQLite has no shared memory, e.g. on some network filesystems, it uses
// no write-ahead log, and the database has no file beside it.
func TestADatabaseWithoutAWriteAheadLogOpens(t *testing.T) {
	f := files{db: filepath.Join(t.TempDir(), "state.db")}
	if err := os.WriteFile(f.db, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	seen, err := f.seePresent()
	if err != nil {
		t.Fatal(err)
	}
	if err := seen.check(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(f.db); err != nil {
		t.Fatal(err)
	}
	if err := seen.check(); !errors.Is(err, errDamaged) {
		t.Errorf("the database was removed: %v", err)
	}
	if _, err := f.seePresent(); err == nil {
		t.Error("a missing database is present")
	}
}
