package blockdevice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// chunk is the size of a read from a device, in bytes.
const chunk = 256 << 10

// Blank reports whether a device of size bytes is proven empty. This means that
// it has no known signature and every byte ever written to it is zero.
// Otherwise found describes the contents. Of a loop device, Blank reads only
// the file's extents with data; of any other device, it reads everything.
// progress, if set, receives the bytes done and the total. If ctx ends early,
// the error is ctx.Err().
func Blank(ctx context.Context, r io.ReaderAt, size int64, progress func(done, total int64)) (blank bool, found string, err error) {
	signatures, err := Probe(r, size)
	if err != nil {
		return false, "", err
	}
	if len(signatures) > 0 {
		return false, Describe(signatures), nil
	}
	next := func(from int64) (start, end int64, err error) { return from, size, nil }
	if device, ok := r.(*os.File); ok {
		if file := fileBehind(device); file != nil {
			defer file.Close()
			// The extents show only data that has left the device's cache.
			if err := device.Sync(); err != nil {
				return false, "", fmt.Errorf("cannot read the device: %w", err)
			}
			next = func(from int64) (int64, int64, error) { return dataOf(file, from, size) }
		}
	}
	zero, err := allZero(ctx, r, size, next, progress)
	switch {
	case ctx.Err() != nil:
		return false, "", ctx.Err()
	case err != nil:
		return false, "", fmt.Errorf("cannot read the device: %w", err)
	case !zero:
		return false, "data of an unknown kind", nil
	}
	return true, "", nil
}

// allZero reports whether the extents that next returns, up to size, contain
// only zeros.
func allZero(ctx context.Context, r io.ReaderAt, size int64, next func(from int64) (start, end int64, err error), progress func(done, total int64)) (bool, error) {
	zeros, b := make([]byte, chunk), make([]byte, chunk)
	for at := int64(0); at < size; {
		start, end, err := next(at)
		if err != nil {
			return false, err
		}
		for at = start; at < end; {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			n := min(chunk, end-at)
			if got, err := r.ReadAt(b[:n], at); int64(got) < n && err != nil {
				return false, err
			}
			if !bytes.Equal(b[:n], zeros[:n]) {
				return false, nil
			}
			at += n
			if progress != nil {
				progress(at, size)
			}
		}
	}
	return true, nil
}

// dataOf returns the first extent with data at or after an offset, or size if
// there is none. On a filesystem without SEEK_DATA, everything counts as data.
func dataOf(file *os.File, from, size int64) (start, end int64, err error) {
	start, err = unix.Seek(int(file.Fd()), from, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size, nil
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return from, size, nil
	}
	if err == nil {
		end, err = unix.Seek(int(file.Fd()), start, unix.SEEK_HOLE)
	}
	if err != nil {
		return 0, 0, err
	}
	return min(start, size), min(end, size), nil
}

// fileBehind opens the backing file of a loop device. It returns nil for other
// devices, and if it cannot verify the file, e.g. in another mount namespace.
func fileBehind(device *os.File) *os.File {
	status, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err != nil || status.Offset != 0 {
		return nil
	}
	path, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device.Name()), "loop/backing_file"))
	if err != nil {
		return nil
	}
	file, err := os.OpenFile(strings.TrimSuffix(string(path), "\n"), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	if !sameFile(file, status) {
		_ = file.Close()
		return nil
	}
	return file
}

// sameFile reports whether a file is the backing file of the loop device with
// the status.
func sameFile(file *os.File, status *unix.LoopInfo64) bool {
	var is unix.Stat_t
	var on unix.Statfs_t
	if unix.Fstat(int(file.Fd()), &is) != nil || unix.Fstatfs(int(file.Fd()), &on) != nil {
		return false
	}
	// On btrfs, the loop driver reports the device number of the filesystem, but
	// fstat reports the one of the subvolume.
	device := is.Dev == status.Device || on.Type == unix.BTRFS_SUPER_MAGIC
	return is.Mode&unix.S_IFMT == unix.S_IFREG && device && is.Ino == status.Inode
}
