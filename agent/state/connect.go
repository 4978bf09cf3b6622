package state

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
)

// connect opens the one connection that writes and those that read.
func (l *Local) connect(ctx context.Context) error {
	var err error
	if l.writer, err = openDB(l.files.db, 1); err != nil {
		return err
	}
	if l.conn, err = l.writer.Conn(ctx); err != nil {
		return err
	}
	l.readers, err = openDB(l.files.db, 4, "query_only(1)")
	return err
}

// disconnect lets go of the file. Calls that are under way get an error.
func (l *Local) disconnect() error {
	var errs []error
	for _, stmt := range l.prepared {
		errs = append(errs, stmt.Close())
	}
	if l.readers != nil {
		errs = append(errs, l.readers.Close())
	}
	if l.conn != nil {
		if err := l.conn.Close(); !errors.Is(err, sql.ErrConnDone) {
			errs = append(errs, err)
		}
	}
	if l.writer != nil {
		errs = append(errs, l.writer.Close())
	}
	l.prepared = nil
	return errors.Join(errs...)
}

// doubt keeps in the store that its records may be incomplete.
func (l *Local) doubt(reason string) error {
	return l.commit(func(_ context.Context, m *meta) error { m.rebuilt = reason; return nil })
}

// Settle forgets that the store was rebuilt: the records are whole again.
func (l *Local) Settle(ctx context.Context) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.give()
	return l.commit(func(_ context.Context, m *meta) error { m.rebuilt = ""; return nil })
}

// lastGoodBeside finds the last good copy that went into the quarantine with
// the store at path.
func lastGoodBeside(path string) string {
	if path == "" {
		return ""
	}
	stamp, _, _ := strings.Cut(filepath.Base(path), "-")
	if p := filepath.Join(filepath.Dir(path), stamp+"-state.db.last-good"); exists(p) {
		return p
	}
	return ""
}
