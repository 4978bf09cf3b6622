package state

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// dirLock keeps a second process out of the state directory. The kernel
// releases the lock when its holder ends; the file stays.
type dirLock struct{ f *os.File }

// lockDir takes the lock. If another process holds the lock, lockDir returns at
// once with a fault.Conflict that names the holder's pid.
func lockDir(path string) (*dirLock, error) {
	// Without O_NONBLOCK, a fifo at this path would block the agent.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fault.New(fault.NeedsOperator, "cannot lock the state directory: %w", err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, fault.New(fault.NeedsOperator, "cannot lock the state directory: %s is not a regular file", path)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder, _ := io.ReadAll(io.LimitReader(f, 64))
		_ = f.Close()
		pid := cmp.Or(strings.TrimSpace(string(holder)), "unknown")
		return nil, fault.New(fault.Conflict, "cannot open the store: another agent (pid %s) has it open", pid)
	}
	if err != nil {
		_ = f.Close()
		return nil, fault.New(fault.Transient, "cannot lock the state directory: %w", err)
	}
	// The pid is only for the message; the lock works without it.
	_ = f.Truncate(0)
	_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return &dirLock{f}, nil
}

func (l *dirLock) release() error {
	if l == nil {
		return nil
	}
	// Closing the file is not enough. A child that was forked just before and has
	// not reached its exec would still hold the lock.
	_ = unix.Flock(int(l.f.Fd()), unix.LOCK_UN)
	return l.f.Close()
}
