package lxc

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/pause"
)

// locks serialises the changes of each instance in this process.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// hold waits until no other change of an instance runs.
func (l *locks) hold(ctx context.Context, name string) (release func(), err error) {
	for {
		l.mu.Lock()
		if l.held == nil {
			l.held = map[string]chan struct{}{}
		}
		other, busy := l.held[name]
		if !busy {
			done := make(chan struct{})
			l.held[name] = done
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, name)
				l.mu.Unlock()
				close(done)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lockEvery is the interval at which lock tries to get the folder of an instance
// that another agent is changing.
const lockEvery = 50 * time.Millisecond

// lock waits until neither this process nor another agent changes an instance.
// If the instance is absent, only this process is excluded.
func (d *Driver) lock(ctx context.Context, name string) (unlock func(), err error) {
	if err := linked(d.instance(name)); err != nil {
		return nil, fault.Wrap(fault.NeedsOperator, err)
	}
	release, err := d.locks.hold(ctx, name)
	if err != nil {
		return nil, err
	}
	free, err := lockFolder(ctx, d.instance(name))
	if err != nil {
		release()
		return nil, err
	}
	return func() { free(); release() }, nil
}

// lockFolder waits until no other process holds the lock on a folder.
func lockFolder(ctx context.Context, path string) (unlock func(), err error) {
	for {
		folder, free, err := tryFolder(path)
		if err == nil && free {
			return func() {
				if folder != nil {
					_ = folder.Close()
				}
			}, nil
		}
		if err == nil {
			err = pause.For(ctx, lockEvery)
		}
		if err != nil {
			return nil, err
		}
	}
}

// tryFolder locks a folder. free is false if another process holds the lock, or
// if the folder was replaced meanwhile. An absent folder is free.
func tryFolder(path string) (folder *os.File, free bool, err error) {
	folder, err = os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if !free {
			_ = folder.Close()
		}
	}()
	err = unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	opened, err := folder.Stat()
	if err != nil {
		return nil, false, err
	}
	now, err := os.Lstat(path)
	return folder, err == nil && os.SameFile(opened, now), nil
}
