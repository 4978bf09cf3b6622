package state

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"hostler/internal/fault"
)

// Local is the store on this host's disk: SQLite with a write-ahead log. One
// connection writes; reads are answered from a copy in memory. It is safe for
// concurrent use; a single process has it open at a time.
type Local struct {
	files       files
	clock       func() time.Time
	log         *slog.Logger
	backupEvery int
	maxEvents   int64

	lock    *dirLock
	present present
	mark    *markFile
	writer  *sql.DB
	events  *sql.DB   // reads the events
	conn    *sql.Conn // the writer's one connection
	stmts   statements
	// prepared are the statements to close. While a statement is open, SQLite
	// keeps the connection and with it the write-ahead log.
	prepared []*sql.Stmt
	hub      *hub

	// turn is held by the goroutine that commits. It is a channel, so that waiting
	// for it can be cancelled with a context. It guards meta, unsynced and
	// sinceBackup. queue holds the changes that wait for turn.
	turn        chan struct{}
	queue       queue
	memory      *memory
	commits     atomic.Int64
	syncs       atomic.Int64
	meta        meta
	unsynced    *time.Timer // syncs the relaxed changes; nil if there are none since the last sync
	sinceBackup int
	backups     sync.WaitGroup
	backingUp   atomic.Bool

	closed atomic.Bool
	broken atomic.Pointer[brokenError]
	failed chan struct{} // closed when broken is set
}

type brokenError struct{ err error }

// statements are the prepared statements of the writer's connection.
type statements struct {
	get, put, remove, setMeta         *sql.Stmt
	begin, end, intent, record, prune *sql.Stmt
}

func (l *Local) prepare(ctx context.Context) error {
	for _, s := range []struct {
		to   **sql.Stmt
		text string
	}{
		{&l.stmts.get, "SELECT " + objectColumns + " FROM objects WHERE kind = ? AND name = ?"},
		{&l.stmts.put, "INSERT OR REPLACE INTO objects (" + objectColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
		{&l.stmts.remove, "DELETE FROM objects WHERE kind = ? AND name = ?"},
		{&l.stmts.setMeta, "INSERT OR REPLACE INTO meta (id, " + metaColumns + ") VALUES (1, ?, ?, ?, ?, ?, ?)"},
		{&l.stmts.begin, "INSERT INTO intents (" + intentColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?)"},
		{&l.stmts.intent, "SELECT " + intentColumns + " FROM intents WHERE token = ?"},
		{&l.stmts.end, "DELETE FROM intents WHERE token = ?"},
		{&l.stmts.record, "INSERT INTO events (time, kind, name, uid, level, reason, message, attempt, retry_limit, next_retry) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
		{&l.stmts.prune, "DELETE FROM events WHERE seq <= (SELECT max(seq) FROM events) - ?"},
	} {
		stmt, err := l.conn.PrepareContext(ctx, s.text)
		if err != nil {
			return err
		}
		*s.to = stmt
		l.prepared = append(l.prepared, stmt)
	}
	return nil
}

func errClosed() error { return fault.New(fault.NotReady, "cannot use the store: it is closed") }

// open returns an error once the store is closed.
func (l *Local) open() error {
	if l.closed.Load() {
		return errClosed()
	}
	return nil
}

// Health returns nil, or the reason why the store refuses writes until it is
// opened again.
func (l *Local) Health() error {
	if b := l.broken.Load(); b != nil {
		return fault.New(fault.NeedsOperator,
			"cannot write the store: it is read-only since it failed (%v); restart the agent to check it", b.err)
	}
	return nil
}

// Failed returns a channel that is closed when Health begins to return a reason.
func (l *Local) Failed() <-chan struct{} { return l.failed }

// take waits for l.turn.
func (l *Local) take(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := l.open()
	if err == nil {
		err = l.Health()
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		l.give()
	}
	return err
}

func (l *Local) give() { <-l.turn }

// commit runs f() in one transaction with a copy of meta, which f() may change.
// It keeps the copy if the transaction is committed. The caller holds l.turn. A
// commit cannot be cancelled, because transactions are short and the outcome of
// a cancelled COMMIT would be unknown. A relaxed commit is not synced. It
// becomes durable with the next other commit, which comes within relaxedTime,
// because SQLite syncs the whole write-ahead log.
func (l *Local) commit(relaxed bool, f func(ctx context.Context, m *meta) error) error {
	ctx := context.Background()
	m := l.meta
	sync := "FULL"
	if relaxed {
		sync = "NORMAL"
	}
	_, err := l.conn.ExecContext(ctx, "PRAGMA synchronous = "+sync)
	if err == nil {
		err = inTx(ctx, l.conn, func() error {
			if err := f(ctx, &m); err != nil {
				return err
			}
			if m == l.meta && (relaxed || l.unsynced == nil) {
				return nil
			}
			_, err := l.stmts.setMeta.ExecContext(ctx, m.storeID, m.generation, m.revision, m.sum, m.rebuilt, m.checksum())
			return err
		})
	}
	if err == nil {
		err = l.present.check()
	}
	if err != nil {
		return l.fail("write", err)
	}
	l.commits.Add(1)
	if !relaxed && (m != l.meta || l.unsynced != nil) {
		l.syncs.Add(1)
	}
	l.meta = m
	switch {
	case !relaxed:
		if l.unsynced != nil {
			l.unsynced.Stop()
			l.unsynced = nil
		}
		// The mark names only durable revisions, or a power cut would leave it above
		// the store. It is nil while the store is being opened.
		if l.mark != nil {
			l.mark.set(m.storeID, m.revision)
		}
	case l.unsynced == nil:
		l.unsynced = time.AfterFunc(relaxedTime, l.syncLater)
	}
	return nil
}

// syncRetry is the delay after a failed sync, e.g. on a full disk.
const syncRetry = 30 * time.Second

// syncLater makes the relaxed changes durable. After a failure it tries again.
func (l *Local) syncLater() {
	if err := l.Sync(context.Background()); err != nil && l.open() == nil && l.Health() == nil {
		l.log.Warn("The store cannot be synced; the agent tries again.", "error", err)
		time.AfterFunc(syncRetry, l.syncLater)
	}
}

// Syncs counts the commits that were synced to the disk since the store was
// opened.
func (l *Local) Syncs() int64 { return l.syncs.Load() }

// fail returns an error of SQLite with a fault kind. If the error leaves the
// contents of the disk in doubt, the store becomes read-only. The kernel
// reports a failed fsync only once, so the next fsync would succeed although
// the data is lost.
func (l *Local) fail(verb string, err error) error {
	if fault.KindOf(err) != fault.Transient || fault.Is(err, fault.Transient) {
		return err
	}
	code := sqliteCode(err)
	switch {
	case l.closed.Load():
		return errClosed()
	case isFull(err):
		return fault.New(fault.Transient, "cannot %s the store: no space left: %w", verb, err)
	case isDamage(err), code == sqlite3.SQLITE_IOERR, code == sqlite3.SQLITE_READONLY:
		if l.broken.CompareAndSwap(nil, &brokenError{err}) {
			l.log.Error("The store failed and is read-only until it is opened again.", "error", err)
			close(l.failed)
		}
		return fault.New(fault.NeedsOperator, "cannot %s the store: %w", verb, err)
	}
	return fault.New(fault.Transient, "cannot %s the store: %w", verb, err)
}

// sqliteCode returns the primary result code, or 0 for an error that is not
// SQLite's.
func sqliteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// isDamage reports whether an error means wrong bytes in the file, as opposed
// to a host that cannot read it at the moment.
func isDamage(err error) bool {
	switch sqliteCode(err) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return true
	}
	return errors.Is(err, errDamaged)
}

func newUID() string { return uuid.NewString() }

// Close ends the watches, makes a last backup and closes the store. The store
// cannot be used afterwards. A second call does nothing.
func (l *Local) Close() error {
	l.turn <- struct{}{}
	if l.closed.Swap(true) {
		l.give()
		return nil
	}
	l.give()
	l.hub.close()
	l.backups.Wait()
	l.turn <- struct{}{}
	defer l.give()
	var errs []error
	if l.broken.Load() == nil {
		if l.sinceBackup > 0 {
			errs = append(errs, l.backup(context.Background()))
		}
		errs = append(errs, l.advance())
	}
	return errors.Join(append(errs, l.release())...)
}

// release closes everything that Open opened, in reverse order.
func (l *Local) release() error {
	return errors.Join(l.disconnect(), l.mark.close(), l.lock.release())
}

// printable replaces invalid UTF-8 in text that the user reads.
func printable(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
