package state

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"hostler/internal/failpoint"
)

// written counts a change and starts a backup after every backupEvery changes.
// The caller holds l.turn.
func (l *Local) written() {
	l.sinceBackup++
	if l.sinceBackup < l.backupEvery || l.backingUp.Swap(true) {
		return
	}
	l.sinceBackup = 0
	// The copy is made while others write, because it reads one snapshot of the
	// store.
	l.backups.Go(func() {
		defer l.backingUp.Store(false)
		if err := l.backup(context.Background()); err != nil {
			l.log.Warn("The copy of the store could not be made; it will be retried later.", "error", err)
			return
		}
		l.turn <- struct{}{}
		defer l.give()
		// This raises the store's generation above that of the copy, so that the copy
		// is recognised as old.
		if err := l.advance(); err != nil {
			l.log.Warn("The generation of the store could not be moved.", "error", err)
		}
	})
}

// backup replaces the last good copy by a copy of the current store.
func (l *Local) backup(ctx context.Context) error {
	tmp := l.files.lastGood + ".tmp"
	if err := l.copyTo(ctx, tmp); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("cannot copy the store: %w", err)
	}
	if err := os.Rename(tmp, l.files.lastGood); err != nil {
		return fmt.Errorf("cannot copy the store: %w", err)
	}
	if err := failpoint.Hit(failpoint.StoreBackupNoDirSync); err != nil {
		return err
	}
	return syncDir(l.files.dir)
}

func (l *Local) copyTo(ctx context.Context, tmp string) error {
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	// SQLite writes into an existing empty file and keeps the file's mode.
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	db, err := openDB(l.files.db, 1)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := l.verify(ctx, db); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", tmp); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return failpoint.Hit(failpoint.StoreBackupNoRename)
}

// verify checks all rows on the disk. Since reads are answered from memory, this
// is where an open store notices that the disk has other bytes than were
// written; it then refuses writes.
func (l *Local) verify(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	// One read transaction is used, so that the rows and their sum match.
	return l.readError(ctx, inTx(ctx, conn, func() error {
		return recoverDamage(func() error { _, _, err := check(ctx, conn); return err })
	}))
}

// advance increments the generation of the store and then of its identity file,
// so that every earlier copy is recognised as old. The caller holds l.turn.
func (l *Local) advance() error {
	if l.broken.Load() != nil {
		return nil
	}
	if err := l.commit(false, func(_ context.Context, m *meta) error { m.generation++; return nil }); err != nil {
		return err
	}
	return writeIdentity(l.files.identity, identity{l.meta.storeID, l.meta.generation})
}
