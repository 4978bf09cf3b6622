package state

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"

	"hostler/internal/failpoint"
)

// applicationID marks hostler's files in SQLite's header ("hstl").
const applicationID = 0x6873746c

// migrations are the steps from each schema version to the next. The statements
// at index n turn version n into version n+1. Each step runs in one transaction
// with its version number, so a crash leaves the old or the new version.
var migrations = [][]string{{
	// The table has one row. sum is the XOR of the checksums (chk) of all rows of
	// objects and intents. It reveals a lost row, and a deleted row that came back.
	`CREATE TABLE meta (
		id INTEGER PRIMARY KEY CHECK (id = 1),
		store_id TEXT NOT NULL,
		generation INTEGER NOT NULL,
		revision INTEGER NOT NULL,
		sum INTEGER NOT NULL,
		rebuilt TEXT NOT NULL,
		chk INTEGER NOT NULL)`,
	`CREATE TABLE objects (
		kind TEXT NOT NULL,
		name TEXT NOT NULL,
		uid TEXT NOT NULL,
		revision INTEGER NOT NULL,
		generation INTEGER NOT NULL,
		life TEXT NOT NULL,
		spec BLOB NOT NULL,
		status BLOB,
		created INTEGER NOT NULL,
		updated INTEGER NOT NULL,
		chk INTEGER NOT NULL,
		PRIMARY KEY (kind, name)) WITHOUT ROWID`,
	`CREATE TABLE intents (
		seq INTEGER PRIMARY KEY AUTOINCREMENT,
		token TEXT NOT NULL UNIQUE,
		kind TEXT NOT NULL,
		name TEXT NOT NULL,
		uid TEXT NOT NULL,
		action TEXT NOT NULL,
		began INTEGER NOT NULL,
		owner TEXT NOT NULL,
		chk INTEGER NOT NULL)`,
	`CREATE TABLE events (
		seq INTEGER PRIMARY KEY AUTOINCREMENT,
		time INTEGER NOT NULL,
		kind TEXT NOT NULL,
		name TEXT NOT NULL,
		uid TEXT NOT NULL,
		level TEXT NOT NULL,
		reason TEXT NOT NULL,
		message TEXT NOT NULL)`,
	`CREATE INDEX events_object ON events (kind, name, seq)`,
}, {
	`ALTER TABLE events ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0`,
	`ALTER TABLE events ADD COLUMN retry_limit INTEGER NOT NULL DEFAULT 0`,
	`ALTER TABLE events ADD COLUMN next_retry INTEGER`,
}}

// openDB opens the file with at most n connections. A commit is synced before
// it returns. Every read of a page checks for damaged cells.
func openDB(path string, n int, pragmas ...string) (*sql.DB, error) {
	q := url.Values{"_pragma": append([]string{
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)",
		"cell_size_check(1)", "trusted_schema(0)", "mmap_size(0)",
	}, pragmas...)}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

func schemaVersion(ctx context.Context, c *sql.Conn) (int, error) {
	var v int
	err := c.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v)
	return v, err
}

// migrate brings the schema to the latest version of steps. from is its present
// version. prepare() runs inside the transaction that creates version 1.
func migrate(ctx context.Context, c *sql.Conn, from int, steps [][]string, prepare func() error) error {
	for v := from; v < len(steps); v++ {
		if err := inTx(ctx, c, func() error {
			for _, stmt := range steps[v] {
				if _, err := c.ExecContext(ctx, stmt); err != nil {
					return err
				}
			}
			if err := failpoint.Hit(failpoint.StoreMidMigration); err != nil {
				return err
			}
			if v == 0 {
				if err := prepare(); err != nil {
					return err
				}
			}
			_, err := c.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d; PRAGMA application_id = %d", v+1, applicationID))
			return err
		}); err != nil {
			return fmt.Errorf("cannot bring the store from schema %d to %d: %w", v, v+1, err)
		}
	}
	if from == len(steps) {
		return nil
	}
	// An older agent reads the version from the main file before it opens the
	// store, so the version must not stay in the write-ahead log only.
	_, err := c.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}

// inTx runs f in one transaction, which holds the write lock from its start. It
// rolls back when f() returns an error or panics.
func inTx(ctx context.Context, c *sql.Conn, f func() error) error {
	if _, err := c.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			_, _ = c.ExecContext(ctx, "ROLLBACK")
		}
	}()
	if err := f(); err != nil {
		return err
	}
	if _, err := c.ExecContext(ctx, "COMMIT"); err != nil {
		return err
	}
	done = true
	return nil
}

// checkSchema compares the schema with a freshly migrated schema, because a
// changed byte in the schema may hide a column that no other check reads.
func checkSchema(ctx context.Context, c *sql.Conn) error {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ours, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = ours.Close() }()
	if err := migrate(ctx, ours, 0, migrations, func() error { return nil }); err != nil {
		return err
	}
	want, err := schemaText(ctx, ours)
	if err != nil {
		return err
	}
	got, err := schemaText(ctx, c)
	if err == nil && got != want {
		err = fmt.Errorf("%w: its schema is not ours", errDamaged)
	}
	return err
}

func schemaText(ctx context.Context, c *sql.Conn) (string, error) {
	text := ""
	err := walk(ctx, c, "SELECT type || name || tbl_name || coalesce(sql, '') FROM sqlite_schema ORDER BY name, type", func(s scanner) error {
		var row string
		err := s.Scan(&row)
		text += row + ";"
		return err
	})
	return text, err
}
