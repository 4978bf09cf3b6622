package mounts

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"hostler/storage"
)

// Used identifies an object that processes may hold. FS identifies a filesystem
// by the device number of its files. Block identifies a block device by its own
// number. 0 means none.
type Used struct {
	FS, Block uint64
	// Device is the block device's path. It identifies mounts of filesystems that
	// have their own device numbers (btrfs).
	Device string
}

// Holders searches the proc filesystem at proc for the processes that hold the
// object, sorted by process id, each once. A process also holds a block device
// that is mounted in its mount namespace, unless this is the caller's own
// namespace (see Table.OfDevice).
func Holders(proc string, used Used) []storage.Holder {
	var found []storage.Holder
	own, _ := os.Readlink(filepath.Join(proc, "self/ns/mnt"))
	seen := map[string]bool{own: true}
	for _, pid := range pids(proc) {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		path := heldBy(dir, used)
		if ns, err := os.Readlink(filepath.Join(dir, "ns/mnt")); err == nil && !seen[ns] {
			seen[ns] = true
			if path == "" && used.Block != 0 {
				path = mountedIn(dir, used)
			}
		}
		if path != "" {
			found = append(found, storage.Holder{PID: pid, Command: command(dir), Path: path})
		}
	}
	return found
}

func pids(proc string) (all []int) {
	entries, _ := os.ReadDir(proc)
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	slices.Sort(all)
	return all
}

// heldBy returns the path of the first file that the process holds open or maps
// and that used accepts, or "". dir is the process's folder in /proc.
func heldBy(dir string, used Used) string {
	links := []string{"cwd", "root", "exe"}
	fds, _ := os.ReadDir(filepath.Join(dir, "fd"))
	for _, fd := range fds {
		links = append(links, "fd/"+fd.Name())
	}
	for _, name := range links {
		link := filepath.Join(dir, name)
		var s unix.Stat_t
		// The links in /proc lead to the object itself, in whichever namespace
		// it is. A process that ends meanwhile holds nothing.
		if unix.Stat(link, &s) == nil && used.is(&s) {
			if path, err := os.Readlink(link); err == nil {
				return path
			}
		}
	}
	return mapped(dir, used)
}

func (u Used) is(s *unix.Stat_t) bool {
	return u.FS != 0 && s.Dev == u.FS || u.Block != 0 && s.Mode&unix.S_IFMT == unix.S_IFBLK && s.Rdev == u.Block
}

// mapped returns the path of a file on the filesystem used.FS that the process
// maps into memory, even if the file is no longer open, or "". dir is the
// process's folder in /proc. A line of its file maps reads ADDRESS PERMS OFFSET
// MAJOR:MINOR INODE PATH, where MAJOR and MINOR are hexadecimal.
func mapped(dir string, used Used) string {
	if used.FS == 0 {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(dir, "maps"))
	if err != nil {
		return ""
	}
	want := fmt.Appendf(nil, " %02x:%02x ", unix.Major(used.FS), unix.Minor(used.FS))
	for line := range bytes.Lines(data) {
		if bytes.Contains(line, want) {
			if fields := bytes.Fields(line); len(fields) >= 6 {
				return string(bytes.Join(fields[5:], []byte(" ")))
			}
		}
	}
	return ""
}

// mountedIn returns a text about a mount of the object in the process's mount
// namespace, or "".
func mountedIn(dir string, used Used) string {
	f, err := os.Open(filepath.Join(dir, "mountinfo"))
	if err != nil {
		return ""
	}
	defer f.Close()
	all, _ := mountinfo.GetMountsFromReader(bufio.NewReader(f), nil)
	for _, m := range all {
		if used.mounted(m) {
			return "the mount " + m.Mountpoint
		}
	}
	return ""
}

func (u Used) mounted(m *mountinfo.Info) bool {
	dev := unix.Mkdev(uint32(m.Major), uint32(m.Minor))
	return u.FS != 0 && dev == u.FS || u.Block != 0 && dev == u.Block || u.Device != "" && m.Source == u.Device
}

func command(dir string) string {
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return "an ended process"
	}
	return strings.TrimSpace(string(comm))
}

// WaitHolders returns when any of the holders has ended, or with the context's
// error. It polls every 200 ms, but only to notice the end of the context.
// Without holders it waits for the context to end.
func WaitHolders(ctx context.Context, holders []storage.Holder) error {
	var fds []unix.PollFd
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(int(fd.Fd))
		}
	}()
	for _, h := range holders {
		fd, err := unix.PidfdOpen(h.PID, 0)
		if err == unix.ESRCH {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot wait for process %d: %w", h.PID, err)
		}
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	for {
		// Short polls let the context end the wait.
		const slice = 200 * time.Millisecond
		n, err := unix.Poll(fds, int(slice.Milliseconds()))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case n > 0:
			return nil
		case err != nil && err != unix.EINTR:
			return fmt.Errorf("cannot wait for processes: %w", err)
		}
	}
}
