package images

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is the interval at which a lock that another process holds is tried
// again. A blocking flock could not be cancelled.
const lockPoll = 100 * time.Millisecond

// lock locks a reference against other processes until the returned function is
// called. Lock files are never removed, because otherwise two processes could
// hold locks on different files of the same name.
func (c *Cache) lock(ctx context.Context, name string, report Progress) (func(), error) {
	return flock(ctx, filepath.Join(c.o.Dir, locksDir, name), func() {
		if report != nil {
			report("waiting for another process that works on this image", -1)
		}
	})
}

// lockBlobs locks the files and the index against changes by other processes.
// The lock is held only briefly.
func (c *Cache) lockBlobs() (func(), error) {
	return flock(context.Background(), filepath.Join(c.o.Dir, locksDir, "blobs"), func() {})
}

func flock(ctx context.Context, path string, waiting func()) (func(), error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock: %w", err)
	}
	unlock := func() { _ = f.Close() }
	for reported := false; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return unlock, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			unlock()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		if !reported {
			reported = true
			waiting()
		}
		select {
		case <-ctx.Done():
			unlock()
			return nil, fmt.Errorf("cannot lock %s: %w", path, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}
