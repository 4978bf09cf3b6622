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

// lockPoll is the interval between two checks of a held lock. sayEvery is the
// interval between two progress messages.
const (
	lockPoll = time.Second
	sayEvery = 5 * time.Second
)

// lockHolder is the process that holds a lock of the package manager.
type lockHolder struct {
	pid  int // 0 if the kernel hides it, e.g. for a process in another container
	name string
}

func (h lockHolder) String() string {
	if h.pid <= 0 {
		return "another process"
	}
	return fmt.Sprintf("%s (process %d)", h.name, h.pid)
}

// findHolder returns the holder of the first held lock, or false. It does not
// touch the locks. The locks are POSIX record locks, so the kernel reports
// their holders.
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

// programOf returns the name of a process for a message. For a script, it
// returns the script's name instead of the interpreter's, e.g.
// unattended-upgrade instead of python3.
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
	// comm holds only the first 15 bytes of a name.
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

// waitForLocks returns when no process holds any of the files. It never takes,
// removes or breaks a lock.
func waitForLocks(ctx context.Context, files []string, progress func(string)) error {
	start := time.Now()
	var reported time.Time
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
		if holder != last || now.Sub(reported) >= sayEvery {
			progress(fmt.Sprintf("waiting for dpkg's lock, held by %s for %ds", holder, int(now.Sub(start).Seconds())))
			last, reported = holder, now
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
