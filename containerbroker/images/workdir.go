package images

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/paths"
)

// tempSuffix is the suffix of unfinished work. Files with this suffix are never
// trusted later.
const tempSuffix = paths.TempSuffix

// workDir makes a directory for a job. The returned function removes it. The
// directory is locked while it is in use, so that other processes can recognise
// the directories of processes that were killed.
func (c *Cache) workDir(ctx context.Context) (string, func(), error) {
	tmp := filepath.Join(c.o.Dir, tmpDir)
	// Hold this lock meanwhile, because a new directory looks abandoned until
	// it is locked.
	unlock, err := flock(ctx, filepath.Join(c.o.Dir, locksDir, "tmp"), func() {})
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	dir, err := os.MkdirTemp(tmp, "work-*"+tempSuffix)
	if err != nil {
		return "", nil, fmt.Errorf("cannot make a work folder: %w", err)
	}
	held, err := lockDir(dir)
	if err != nil {
		_ = os.Remove(dir)
		return "", nil, err
	}
	return dir, func() {
		if err := removeWork(dir); err != nil {
			c.log.Warn("work folder cannot be removed now and is removed at the next start", "reason", err.Error())
		}
		_ = held.Close()
	}, nil
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// removeLeftovers removes the work directories of processes that have ended.
func (c *Cache) removeLeftovers() error {
	unlock, err := flock(context.Background(), filepath.Join(c.o.Dir, locksDir, "tmp"), func() {})
	if err != nil {
		return err
	}
	defer unlock()
	tmp := filepath.Join(c.o.Dir, tmpDir)
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !isTemp(e.Name()) {
			continue
		}
		held, err := lockDir(filepath.Join(tmp, e.Name()))
		if err != nil {
			continue // its owner still runs
		}
		err = removeWork(filepath.Join(tmp, e.Name()))
		_ = held.Close()
		if err != nil {
			c.log.Warn("half-done work of an ended process cannot be removed now and is removed at the next start", "folder", e.Name(), "reason", err.Error())
			continue
		}
		c.log.Info("half-done work of an ended process removed", "folder", e.Name())
	}
	return nil
}

// removeWork kills the processes that still work in dir and removes dir.
func removeWork(dir string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		pids, err := processesIn("/proc", dir)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cannot end processes %v in %s", pids, dir)
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return os.RemoveAll(dir)
}

// processesIn finds the processes whose root or working directory is dir or
// below dir. Builds start every program in such a working directory. It
// compares the directories themselves, because in another mount namespace, e.g.
// of a guest, another directory may have the same path.
func processesIn(proc, dir string) ([]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, link := range []string{"cwd", "root"} {
			link = filepath.Join(proc, e.Name(), link)
			at, err := os.Readlink(link)
			if err == nil && (at == dir || strings.HasPrefix(at, dir+"/")) && same(link, at) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids, nil
}

// same reports whether two paths lead to the same file.
func same(one, other string) bool {
	a, err := os.Stat(one)
	if err != nil {
		return false
	}
	b, err := os.Stat(other)
	return err == nil && os.SameFile(a, b)
}

// spare is the space that always stays free on the cache's filesystem, in
// bytes.
const spare = 64 << 20

// needSpace returns an error if the cache's filesystem has no room for n more
// bytes. To make room, it removes files of replaced images, parts of downloads and
// packages of earlier builds.
func (c *Cache) needSpace(n int64) error {
	for swept := false; ; {
		var st unix.Statfs_t
		if err := unix.Statfs(c.o.Dir, &st); err != nil {
			return fmt.Errorf("cannot ask for free space: %w", err)
		}
		free := int64(st.Bavail) * st.Bsize //nolint:gosec // no filesystem has 2^63 blocks
		if free >= n+spare {
			return nil
		}
		if !swept {
			swept = true
			if err := c.sweep(replacedAge); err != nil {
				return err
			}
			continue
		}
		if c.dropOldest(keptParts) || c.dropOldest(keptDebs) {
			continue
		}
		// The error is transient, because space may become free without any
		// event.
		return fault.New(fault.Transient, "cannot keep the image: %d MiB are needed in %s and %d MiB are free", (n+spare)>>20, c.o.Dir, free>>20)
	}
}
