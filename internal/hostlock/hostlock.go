// Package hostlock is a lock that one process of the host holds at a time. It
// is the only user of the fslock library, whose bare use is unsafe: its file
// descriptor is inherited by children, an object used again after a timeout
// wedges, and its waiting calls park a thread each.
package hostlock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/juju/fslock"

	"hostler/internal/fault"
)

// Between two attempts lies pollEvery and up to pollJitter more, so that
// waiters that came together do not stay together.
const (
	pollEvery  = 250 * time.Millisecond
	pollJitter = 50 * time.Millisecond
)

// Lock is a held lock.
type Lock struct {
	path string
	once sync.Once
	lock *fslock.Lock
	err  error
}

// Acquire takes the lock at path, for purpose as status shows it. It waits
// until the lock is free or ctx ends; while it waits, onWait (which may be
// nil) is told who holds it, at first and whenever that changes. The folder
// of path is made (0700) when absent and must belong to the caller alone. The
// kernel frees the lock when the process dies, however that happens.
func Acquire(ctx context.Context, path, purpose string, onWait func(Holder)) (*Lock, error) {
	return acquire(ctx, path, purpose, onWait, pollEvery, pollJitter)
}

// TryAcquire takes the lock at once or returns a Conflict that names its
// holder.
func TryAcquire(path, purpose string) (*Lock, error) {
	lock, err := attempt(path, purpose)
	if errors.Is(err, fslock.ErrLocked) {
		holder, _ := Read(path)
		return nil, fault.New(fault.Conflict, "cannot take lock %s: held by %s", path, holder)
	}
	return lock, err
}

func acquire(ctx context.Context, path, purpose string, onWait func(Holder), every, jitter time.Duration) (*Lock, error) {
	var told Holder
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("cannot take lock %s, held by %s: %w", path, told, err)
		}
		lock, err := attempt(path, purpose)
		if err == nil || !errors.Is(err, fslock.ErrLocked) {
			return lock, err
		}
		if holder, held := Read(path); held && (first || holder != told) {
			told = holder
			if onWait != nil {
				onWait(holder)
			}
		}
		timer := time.NewTimer(every + rand.N(jitter+1)) //nolint:gosec // spreads waiters, hides nothing
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// attempt tries once, with a Lock object that nobody used before.
func attempt(path, purpose string) (*Lock, error) {
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("cannot take lock %s: %w", path, err)
	}
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fault.New(fault.NeedsOperator, "cannot take lock %s: it is a %s, not a plain file; remove it", path, info.Mode().Type())
	}
	lock := fslock.New(path)
	// No child may start between the open inside TryLock, which lacks
	// O_CLOEXEC, and the moment at which the flag is set.
	syscall.ForkLock.RLock()
	err := lock.TryLock()
	if err == nil {
		err = closeOnExec(path)
		if err != nil {
			_ = lock.Unlock()
		}
	}
	syscall.ForkLock.RUnlock()
	if errors.Is(err, fslock.ErrLocked) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("cannot take lock %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = lock.Unlock()
		return nil, fmt.Errorf("cannot take lock %s: %w", path, err)
	}
	if err := writeHolder(path, purpose); err != nil {
		_ = lock.Unlock()
		return nil, fmt.Errorf("cannot take lock %s: %w", path, err)
	}
	return &Lock{path: path, lock: lock}, nil
}

// Release frees the lock. Releasing again is harmless: the library's own
// second unlock would close a stranger's file.
func (l *Lock) Release() error {
	l.once.Do(func() {
		clearHolder(l.path)
		if err := l.lock.Unlock(); err != nil {
			l.err = fmt.Errorf("cannot release lock %s: %w", l.path, err)
		}
	})
	return l.err
}

// checkDir makes the lock's folder and refuses one where somebody else could
// swap the lock file or hold it open.
func checkDir(dir string) error {
	// The folder above may be one that others share, such as /run/hostler.
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return fault.New(fault.NeedsOperator, "%s is no folder", dir)
	}
	if int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fault.New(fault.NeedsOperator, "%s has owner %d and mode %#o, want owner %d and mode 0700",
			dir, stat.Uid, info.Mode().Perm(), os.Geteuid())
	}
	return nil
}
