package state

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"

	sqlite3 "modernc.org/sqlite/lib"

	"hostler/internal/fault"
)

// check reads all rows, verifies their checksums and returns the meta row and
// a copy of the objects and intents. Damage is an error for which isDamage is
// true.
func check(ctx context.Context, c *sql.Conn) (m meta, all *memory, err error) {
	var answer string
	if err := c.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&answer); err != nil {
		return m, nil, err
	}
	if answer != "ok" {
		return m, nil, fmt.Errorf("%w: %s", errDamaged, answer)
	}
	if err := checkSchema(ctx, c); err != nil {
		return m, nil, err
	}
	if m, err = scanMeta(c.QueryRowContext(ctx, "SELECT "+metaColumns+" FROM meta")); err != nil {
		return m, nil, err
	}
	all = newMemory()
	var sum int64
	if err := walk(ctx, c, "SELECT "+objectColumns+" FROM objects ORDER BY kind, name", func(s scanner) error {
		o, err := scanObject(s)
		if err != nil {
			return err
		}
		if o.Revision > m.revision {
			return fmt.Errorf("%w: %s/%s is at revision %d of %d", errDamaged, o.Kind, o.Name, o.Revision, m.revision)
		}
		if !json.Valid(o.Spec) || o.Status != nil && !json.Valid(o.Status) {
			return fmt.Errorf("%w: %s/%s is not JSON", errDamaged, o.Kind, o.Name)
		}
		sum ^= o.checksum()
		all.set(m.revision, change{object: o})
		return nil
	}); err != nil {
		return m, nil, err
	}
	if err := walk(ctx, c, "SELECT "+intentColumns+" FROM intents ORDER BY seq", func(s scanner) error {
		in, err := scanIntent(s)
		sum ^= in.checksum()
		all.begin(in)
		return err
	}); err != nil {
		return m, nil, err
	}
	if sum != m.sum {
		return m, nil, fmt.Errorf("%w: rows are missing or old", errDamaged)
	}
	all.set(m.revision)
	return m, all, walk(ctx, c, "SELECT "+eventColumns+" FROM events", func(s scanner) error {
		_, err := scanEvent(s)
		return err
	})
}

func walk(ctx context.Context, c *sql.Conn, query string, f func(scanner) error) error {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// isUnusable reports whether an error of opening the store means that the file
// is damaged or not ours. Errors of the host, e.g. no memory, no file
// descriptors or a failed read of the disk, do not count, because the file
// should then stay in place.
func isUnusable(err error) bool {
	if isDamage(err) {
		return true
	}
	switch sqliteCode(err) {
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_SCHEMA,
		sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_INTERNAL:
		return true
	}
	return false
}

// recoverDamage turns a panic of the SQLite library on a damaged file into
// errDamaged.
func recoverDamage(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: reading it failed with %v", errDamaged, r)
		}
	}()
	return f()
}

// look checks the store's file before SQLite opens it and returns the reason
// why the file cannot be trusted, e.g. "it is not a database". It returns "" if
// the file can be trusted, and an error if it has a newer schema.
func look(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return fmt.Sprintf("it is not a regular file but %s", info.Mode().Type()), nil
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if int(owner) != os.Geteuid() {
		return fmt.Sprintf("it belongs to the user %d", owner), nil
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Sprintf("others may write it (mode %04o)", info.Mode().Perm()), nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	// Source of the offsets:
	// https://www.sqlite.org/fileformat.html#the_database_header
	header := make([]byte, 100)
	if _, err := io.ReadFull(f, header); err != nil {
		return "it is shorter than its header", nil
	}
	if string(header[:16]) != "SQLite format 3\x00" {
		return "it is not a database", nil
	}
	// SQLite opens files of version 3 and above read-only or not at all.
	if header[18] > 2 || header[19] > 2 {
		return "its header is damaged", nil
	}
	version := int(binary.BigEndian.Uint32(header[60:]))
	if version > len(migrations) && binary.BigEndian.Uint32(header[68:]) == applicationID {
		return "", newer(version)
	}
	return "", nil
}

func newer(version int) error {
	return fault.New(fault.NeedsOperator, "cannot open the store: it has schema %d and this agent supports up to %d; "+
		"install the newer agent again", version, len(migrations))
}
