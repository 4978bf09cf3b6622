package lxc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// readFile reads a regular file of at most limit bytes. It never waits for a
// fifo and follows no link. It returns errUnreadable if the file itself is the
// reason, i.e. if other files can be read.
func readFile(path string, limit int64) ([]byte, error) {
	text, err := readRegular(path, limit)
	for _, reason := range []error{unix.ELOOP, unix.ENXIO, unix.EACCES, unix.EIO} {
		if errors.Is(err, reason) {
			return nil, fmt.Errorf("%w: %w", errUnreadable, err)
		}
	}
	return text, err
}

func readRegular(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%w: %s is no file of at most %d bytes", errUnreadable, filepath.Base(path), limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// renameNew renames a folder durably, and fails if the new name is taken.
func renameNew(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return syncDir(filepath.Dir(to))
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func syncfs(f *os.File) error { return unix.Syncfs(int(f.Fd())) }
