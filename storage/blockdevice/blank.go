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

// chunk is how much of a device is read at a time, in bytes.
const chunk = 1 << 20

// Blank says whether a device of that size is proven to hold nothing: it bears
// no known signature, and every byte that was ever written to it is zero.
// found says what stands against it. Of a loop device only the extents of its
// file that hold data are read; of any other device everything is read, and
// progress, when set, is told how many bytes of how many are done. The error
// of a context that ends on the way is ctx.Err().
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
			// The extents tell only about data that has left the device's cache.
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

// allZero reads the extents that next returns, up to size.
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

// dataOf returns the first extent with data of a file at or after an offset,
// size where there is none. A filesystem that does not know its extents calls
// the whole file data.
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

// fileBehind opens the file of a loop device; nil where there is none, or where
// it cannot be shown to be the very file, e.g. in another mount namespace.
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

// sameFile says whether a file is the one behind a loop device.
func sameFile(file *os.File, status *unix.LoopInfo64) bool {
	var is unix.Stat_t
	var on unix.Statfs_t
	if unix.Fstat(int(file.Fd()), &is) != nil || unix.Fstatfs(int(file.Fd()), &on) != nil {
		return false
	}
	// The loop driver names the filesystem of a btrfs, stat its subvolume.
	device := is.Dev == status.Device || on.Type == unix.BTRFS_SUPER_MAGIC
	return is.Mode&unix.S_IFMT == unix.S_IFREG && device && is.Ino == status.Inode
}
