// Package hostlock is a lock that only one process of the host holds at a time.
// It is the only user of the fslock library. Direct use of this library is
// unsafe, because children inherit its file descriptor, an object that is used
// again after a timeout hangs, and each waiting call blocks a thread.
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

// The pause between two attempts is pollEvery plus up to pollJitter. The jitter
// spreads waiters that arrived together.
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

// Acquire takes the lock at path; `hostler status` shows the purpose. It waits
// until the lock is free or ctx ends. While it waits, it calls onWait (which
// may be nil) with the holder, at first and after each change of the holder. It
// makes the folder of path with mode 0700 if it is absent. The folder must
// belong to the caller alone. The kernel frees the lock when the process ends.
func Acquire(ctx context.Context, path, purpose string, onWait func(Holder)) (*Lock, error) {
	return acquire(ctx, path, purpose, onWait, pollEvery, pollJitter)
}

// TryAcquire takes the lock without waiting. If the lock is held, it returns a
// Conflict that names the holder.
func TryAcquire(path, purpose string) (*Lock, error) {
	lock, err := attempt(path, purpose)
	if errors.Is(err, fslock.ErrLocked) {
		holder, _ := Read(path)
		return nil, fault.New(fault.Conflict, "cannot take lock %s: held by %s", path, holder)
	}
	return lock, err
}

func acquire(ctx context.Context, path, purpose string, onWait func(Holder), every, jitter time.Duration) (*Lock, error) {
	var reported Holder
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("cannot take lock %s, held by %s: %w", path, reported, err)
		}
		lock, err := attempt(path, purpose)
		if err == nil || !errors.Is(err, fslock.ErrLocked) {
			return lock, err
		}
		if holder, held := Read(path); held && (first || holder != reported) {
			reported = holder
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

// attempt tries once, with a new Lock object.
func attempt(path, purpose string) (*Lock, error) {
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("cannot take lock %s: %w", path, err)
	}
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fault.New(fault.NeedsOperator, "cannot take lock %s: it is a %s, not a plain file; remove it", path, info.Mode().Type())
	}
	lock := fslock.New(path)
	// TryLock opens the file without O_CLOEXEC. ForkLock keeps children from
	// starting before closeOnExec sets the flag.
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

// Release frees the lock. Further calls do nothing, because a second unlock by
// the library would close a descriptor that may belong to another file by then.
func (l *Lock) Release() error {
	l.once.Do(func() {
		clearHolder(l.path)
		if err := l.lock.Unlock(); err != nil {
			l.err = fmt.Errorf("cannot release lock %s: %w", l.path, err)
		}
	})
	return l.err
}

// checkDir makes the lock's folder. It refuses a folder in which another user
// could replace the lock file or hold it open.
func checkDir(dir string) error {
	// The parent folder, e.g. /run/hostler, may be shared with other programs.
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
		return fault.New(fault.NeedsOperator, "%s is not a folder", dir)
	}
	if int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fault.New(fault.NeedsOperator, "%s has owner %d and mode %#o, want owner %d and mode 0700",
			dir, stat.Uid, info.Mode().Perm(), os.Geteuid())
	}
	return nil
}
