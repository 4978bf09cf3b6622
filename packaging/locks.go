package packaging

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often a held lock is looked at; sayEvery how often the
// waiting is told anew.
const (
	lockPoll = time.Second
	sayEvery = 5 * time.Second
)

// lockHolder is the process that uses the package manager.
type lockHolder struct {
	pid  int // 0 when the kernel does not tell, as for one in another container
	name string
}

func (h lockHolder) String() string {
	if h.pid <= 0 {
		return "another process"
	}
	return fmt.Sprintf("%s (process %d)", h.name, h.pid)
}

// findHolder returns who holds one of the lock files, without touching the
// locks; these are POSIX record locks, of which the kernel tells the owner.
func findHolder(files []string) (lockHolder, bool, error) {
	for _, file := range files {
		pid, held, err := lockedBy(file)
		if err != nil {
			return lockHolder{}, false, fmt.Errorf("cannot look at lock %s: %w", file, err)
		}
		if held {
			return lockHolder{pid: pid, name: programOf(pid)}, true, nil
		}
	}
	return lockHolder{}, false, nil
}

func lockedBy(file string) (pid int, held bool, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = f.Close() }()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return 0, false, err
	}
	return int(lock.Pid), lock.Type != unix.F_UNLCK, nil
}

// programOf names a process as a person knows it: a script by its own name
// rather than by its interpreter's.
func programOf(pid int) string {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	comm, _ := os.ReadFile(filepath.Join(proc, "comm"))
	name := strings.TrimSpace(string(comm))
	cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
	args := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
	if strings.HasPrefix(name, "python") || strings.HasPrefix(name, "perl") {
		for _, arg := range args[1:] {
			if !strings.HasPrefix(arg, "-") {
				return filepath.Base(arg)
			}
		}
	}
	// The kernel keeps the first 15 bytes only.
	for _, arg := range args {
		if base := filepath.Base(arg); len(name) == 15 && strings.HasPrefix(base, name) {
			return base
		}
	}
	if name == "" {
		return "a process"
	}
	return name
}

// waitForLocks returns when nobody holds any of the files. It never takes,
// removes or breaks a lock.
func waitForLocks(ctx context.Context, files []string, progress func(string)) error {
	start := time.Now()
	var told time.Time
	var last lockHolder
	for {
		holder, held, err := findHolder(files)
		if err != nil {
			return err
		}
		if !held {
			return nil
		}
		now := time.Now()
		if holder != last || now.Sub(told) >= sayEvery {
			progress(fmt.Sprintf("waiting for dpkg's lock, held by %s for %ds", holder, int(now.Sub(start).Seconds())))
			last, told = holder, now
		}
		timer := time.NewTimer(lockPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("cannot wait for dpkg's lock, held by %s: %w", holder, ctx.Err())
		case <-timer.C:
		}
	}
}
