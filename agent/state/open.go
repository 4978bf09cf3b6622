package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"hostler/internal/fault"
)

// Options are the options of Open().
type Options struct {
	// Dir is created with mode 0700; only the store uses it.
	Dir string
	// Clock returns the times that are written. Nil means time.Now().
	Clock func() time.Time
	// Logger gets the log records. Nil means that nothing is logged.
	Logger *slog.Logger
	// BackupEvery is the number of changes between two backups. 0 means 200.
	BackupEvery int
	// MaxEvents is the number of events that are kept. 0 means 100,000.
	MaxEvents int
}

// OpenReport describes the store that Open found.
type OpenReport struct {
	// Fresh is true if the directory never held a store.
	Fresh bool
	// Rebuilt is true if records were lost, or may have been. Instances, volumes
	// and other things of the host without a record must then be recovered and
	// never be removed. Every Open() sets it until MarkComplete() is called.
	Rebuilt bool
	// Reason is why records may be missing.
	Reason string
	// Quarantined is the path to which Open() moved a damaged store, or "".
	Quarantined string
	// LastGood is the path of the last good copy, empty if there is none. After a
	// loss it is in the quarantine and is never read.
	LastGood string
}

// Open opens the store or creates it. It moves a damaged or outdated store to
// the quarantine, creates a new store in its place and says so in the report.
// Errors: fault.Conflict if another process has the store open;
// fault.NeedsOperator for a store of a newer schema, which is left untouched.
//
// To restore an old copy on purpose: stop the agent, remove store-id and
// store-mark and move the copy to state.db. It is then opened as Rebuilt, with
// its records.
func Open(ctx context.Context, o Options) (*Local, OpenReport, error) {
	l := &Local{
		files: filesIn(o.Dir), clock: o.Clock, log: o.Logger, backupEvery: o.BackupEvery, maxEvents: int64(o.MaxEvents),
		hub: newHub(), turn: make(chan struct{}, 1), failed: make(chan struct{}),
	}
	if l.clock == nil {
		l.clock = time.Now
	}
	l.log = cmp.Or(l.log, slog.New(slog.DiscardHandler))
	if l.backupEvery <= 0 {
		l.backupEvery = 200
	}
	if l.maxEvents <= 0 {
		l.maxEvents = 100_000
	}
	if err := ownDir(o.Dir); err != nil {
		return nil, OpenReport{}, fault.New(fault.NeedsOperator, "cannot open the store: %w", err)
	}
	var err error
	if l.lock, err = lockDir(l.files.lock); err != nil {
		return nil, OpenReport{}, err
	}
	report, err := l.start(ctx)
	if isFull(err) {
		err = fault.New(fault.Transient, "no space left on the file system of %s: free some (%w)", o.Dir, err)
	}
	if err != nil {
		return nil, OpenReport{}, errors.Join(err, l.release())
	}
	return l, report, nil
}

// isFull reports whether an error means that the disk is full. SQLite has a
// separate error code for a full disk when it extends its shared-memory file.
func isFull(err error) bool {
	var e *sqlite.Error
	return errors.Is(err, syscall.ENOSPC) || sqliteCode(err) == sqlite3.SQLITE_FULL ||
		errors.As(err, &e) && e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE
}

// ownDir creates the directory. If the directory exists, other users lose their
// access to it.
func ownDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if info.Mode().Perm() != 0o700 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// start examines the directory and opens the store in it or creates one.
func (l *Local) start(ctx context.Context) (OpenReport, error) {
	id, idErr := readIdentity(l.files.identity)
	if idErr != nil && !errors.Is(idErr, fs.ErrNotExist) && !errors.Is(idErr, errBadIdentity) {
		return OpenReport{}, fault.New(fault.Transient, "cannot open the store: %w", idErr)
	}
	info, err := os.Lstat(l.files.db)
	empty := err == nil && info.Mode().IsRegular() && info.Size() == 0
	if errors.Is(err, fs.ErrNotExist) || empty {
		if !l.traces(idErr) {
			return l.create(ctx, "")
		}
		what := "missing"
		if empty {
			what = "empty"
		}
		return l.replace(ctx, "the store is "+what+" though it had been in use")
	}
	reason, err := look(l.files.db)
	if err != nil {
		return OpenReport{}, fault.Wrap(fault.KindOf(err), err)
	}
	if reason == "" {
		reason = oddSides(l.files.sides())
	}
	if reason != "" {
		return l.replace(ctx, "the store cannot be trusted: "+reason)
	}
	return l.reopen(ctx, id, idErr)
}

// traces reports whether the directory ever held a store. idErr is the error of
// reading the identity.
func (l *Local) traces(idErr error) bool {
	if !errors.Is(idErr, fs.ErrNotExist) || exists(l.files.mark) || exists(l.files.lastGood) {
		return true
	}
	return slices.ContainsFunc(l.files.sides(), exists)
}

func oddSides(paths []string) string {
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
			return fmt.Sprintf("%s is not a regular file but %s", path, info.Mode().Type())
		}
	}
	return ""
}

// reopen opens an existing store.
func (l *Local) reopen(ctx context.Context, id identity, idErr error) (OpenReport, error) {
	// A wrong mode does not harm the records, so it is corrected.
	if err := os.Chmod(l.files.db, 0o600); err != nil {
		return OpenReport{}, fault.New(fault.NeedsOperator, "cannot open the store: %w", err)
	}
	var unmade bool
	err := recoverDamage(func() (err error) { unmade, err = l.openExisting(ctx); return err })
	if err == nil && unmade {
		_ = l.disconnect()
		if !errors.Is(idErr, fs.ErrNotExist) {
			return l.replace(ctx, "the store has no records though it had been in use")
		}
		return l.create(ctx, "")
	}
	if err == nil && idErr == nil {
		err = l.compare(id)
	}
	if err != nil {
		_ = l.disconnect()
		if !isUnusable(err) {
			return OpenReport{}, fault.Wrap(fault.KindOf(err), fmt.Errorf("cannot open the store: %w", err))
		}
		return l.replace(ctx, err.Error())
	}
	report := OpenReport{Fresh: idErr != nil && l.neverUsed()}
	if idErr != nil && !report.Fresh {
		// The records are complete, but may be an older version.
		if err := l.doubt("the identity of the store is missing or damaged: its records may be old"); err != nil {
			return OpenReport{}, err
		}
	}
	return l.finish(report)
}

// neverUsed reports whether the store was created but never written. This
// happens if the agent crashes before it writes the identity file.
func (l *Local) neverUsed() bool {
	return l.meta.generation <= 1 && l.meta.revision == 0 && l.meta.sum == 0 && !exists(l.files.lastGood) &&
		readMark(l.files.mark, l.meta.storeID) == 0
}

// openExisting connects, migrates and checks all rows. unmade is true if the
// file is a database without any table, because the first migration never
// happened.
func (l *Local) openExisting(ctx context.Context) (unmade bool, err error) {
	if err := l.connect(ctx); err != nil {
		return false, err
	}
	version, err := schemaVersion(ctx, l.conn)
	switch {
	case err != nil:
		return false, err
	case version > len(migrations):
		return false, newer(version)
	case version == 0:
		var tables int
		if err := l.conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
			return false, err
		}
		if tables > 0 {
			return false, fmt.Errorf("%w: it has tables and no schema version", errDamaged)
		}
		return true, nil
	}
	if err := migrate(ctx, l.conn, version, migrations, nil); err != nil {
		return false, err
	}
	if l.meta, l.memory, err = check(ctx, l.conn); err != nil {
		return false, err
	}
	return false, l.prepare(ctx)
}

// compare checks the store against its identity and its mark.
func (l *Local) compare(id identity) error {
	switch {
	case id.StoreID != l.meta.storeID:
		return fmt.Errorf("%w: it is another store's (%s, not %s)", errDamaged, l.meta.storeID, id.StoreID)
	case id.Generation > l.meta.generation:
		return fmt.Errorf("%w: it is an older copy (generation %d of %d)", errDamaged, l.meta.generation, id.Generation)
	}
	if mark := readMark(l.files.mark, id.StoreID); mark > l.meta.revision {
		return fmt.Errorf("%w: it is an older copy (revision %d of %d)", errDamaged, l.meta.revision, mark)
	}
	return nil
}

// replace moves the store to the quarantine and creates a new store.
func (l *Local) replace(ctx context.Context, reason string) (OpenReport, error) {
	where, err := l.files.quarantineStore(l.clock())
	if err != nil {
		return OpenReport{}, fault.New(fault.NeedsOperator, "cannot put the damaged store (%s) into the quarantine: %w", reason, err)
	}
	l.log.Error("The store was lost and replaced by an empty store; its records must be rebuilt from the host.",
		"reason", reason, "quarantined", where)
	report, err := l.create(ctx, reason)
	report.Quarantined = where
	if lastGood := lastGoodBeside(where); lastGood != "" {
		report.LastGood = lastGood
	}
	return report, err
}

// create creates a new store. The store keeps the reason until MarkComplete()
// is called, so that a crash in between does not lose it.
func (l *Local) create(ctx context.Context, reason string) (OpenReport, error) {
	f, err := os.OpenFile(l.files.db, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(f.Close(), os.Chmod(l.files.db, 0o600), syncDir(l.files.dir))
	}
	if err == nil {
		err = l.connect(ctx)
	}
	if err == nil {
		m := meta{storeID: uuid.NewString(), rebuilt: reason}
		err = migrate(ctx, l.conn, 0, migrations, func() error {
			_, err := l.conn.ExecContext(ctx, "INSERT INTO meta (id, "+metaColumns+") VALUES (1, ?, ?, ?, ?, ?, ?)",
				m.storeID, m.generation, m.revision, m.sum, m.rebuilt, m.checksum())
			return err
		})
		l.meta, l.memory = m, newMemory()
	}
	if err == nil {
		err = l.prepare(ctx)
	}
	if err != nil {
		return OpenReport{}, fault.Wrap(fault.Transient, fmt.Errorf("cannot make the store: %w", err))
	}
	return l.finish(OpenReport{Fresh: reason == ""})
}

// finish increments the generation, so that earlier copies are recognised as
// old, and completes the report.
func (l *Local) finish(report OpenReport) (OpenReport, error) {
	if info, err := os.Lstat(l.files.mark); err == nil && !info.Mode().IsRegular() {
		if err := l.files.move(l.files.mark, l.clock()); err != nil {
			return report, fault.New(fault.NeedsOperator, "cannot open the store: %w", err)
		}
	}
	if info, err := os.Lstat(l.files.identity); err == nil && info.IsDir() {
		if err := l.files.move(l.files.identity, l.clock()); err != nil {
			return report, fault.New(fault.NeedsOperator, "cannot open the store: %w", err)
		}
	}
	var err error
	if l.mark, err = openMark(l.files.mark); err != nil {
		return report, fault.New(fault.NeedsOperator, "cannot open the store: %w", err)
	}
	if err := l.advance(); err != nil {
		return report, fmt.Errorf("cannot open the store: %w", err)
	}
	if l.present, err = l.files.seePresent(); err != nil {
		return report, fault.New(fault.Transient, "cannot open the store: %w", err)
	}
	l.mark.set(l.meta.storeID, l.meta.revision)
	report.Rebuilt, report.Reason = l.meta.rebuilt != "", l.meta.rebuilt
	report.Fresh = report.Fresh && !report.Rebuilt
	if exists(l.files.lastGood) {
		report.LastGood = l.files.lastGood
	}
	return report, nil
}
