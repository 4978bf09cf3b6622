package hostlock

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

var errSwapped = errors.New("the lock file was replaced or is a link")

// closeOnExec keeps children from inheriting the lock. The library hides its
// descriptor, so closeOnExec sets the flag on every descriptor of this process
// that refers to the lock file. If no descriptor refers to the file now at
// path, another process removed or replaced the lock file. The lock then
// excludes no other process, so closeOnExec returns an error.
func closeOnExec(path string) error {
	var file syscall.Stat_t
	if err := syscall.Lstat(path, &file); err != nil {
		return err
	}
	if file.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return errSwapped
	}
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	found := false
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		var open syscall.Stat_t
		if err := syscall.Fstat(fd, &open); err != nil {
			continue // closed since the directory was read
		}
		if open.Dev == file.Dev && open.Ino == file.Ino {
			syscall.CloseOnExec(fd)
			found = true
		}
	}
	if !found {
		return errSwapped
	}
	return nil
}
