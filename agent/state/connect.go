package state

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
)

// connect opens the single connection for writes and the one for events.
func (l *Local) connect(ctx context.Context) error {
	var err error
	if l.writer, err = openDB(l.files.db, 1); err != nil {
		return err
	}
	if l.conn, err = l.writer.Conn(ctx); err != nil {
		return err
	}
	l.events, err = openDB(l.files.db, 1, "query_only(1)")
	return err
}

// disconnect closes the database. Calls in progress get an error.
func (l *Local) disconnect() error {
	var errs []error
	for _, stmt := range l.prepared {
		errs = append(errs, stmt.Close())
	}
	if l.events != nil {
		errs = append(errs, l.events.Close())
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

// doubt records in the store that its records may be incomplete, and why.
func (l *Local) doubt(reason string) error {
	return l.commit(false, func(_ context.Context, m *meta) error { m.rebuilt = reason; return nil })
}

// MarkComplete removes the reason why records may be missing. Call it when the
// records are complete again.
func (l *Local) MarkComplete(ctx context.Context) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.give()
	return l.commit(false, func(_ context.Context, m *meta) error { m.rebuilt = ""; return nil })
}

// lastGoodBeside returns the path of the last good copy that went into the
// quarantine together with the store at path, or "" if there is none.
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
