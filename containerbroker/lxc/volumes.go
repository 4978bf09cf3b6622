package lxc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// makeVolume makes an empty root filesystem.
func (d *Driver) makeVolume(path string) error {
	if !d.onBtrfs() {
		return os.Mkdir(path, 0o755)
	}
	var a volumeArgs
	copy(a.name[:], filepath.Base(path))
	return ioctl(filepath.Dir(path), btrfsSubvolCreate, unsafe.Pointer(&a))
}

// cloneVolume copies a root filesystem that does not change meanwhile. On btrfs
// the snapshot is durable when the call returns.
func (d *Driver) cloneVolume(ctx context.Context, from, to string) error {
	if !d.onBtrfs() {
		_, err := d.opts.Runner.Run(ctx, run.Command{
			Path: paths.Cp, Args: []string{"-a", "--reflink=auto", "-T", from, to}, Timeout: 10 * time.Minute,
		})
		return err
	}
	source, err := unix.Open(from, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: from, Err: err}
	}
	defer func() { _ = unix.Close(source) }()
	a := snapshotArgs{fd: int64(source)}
	copy(a.name[:], filepath.Base(to))
	return ioctl(filepath.Dir(to), btrfsSnapshotCreate, unsafe.Pointer(&a))
}

// limitVolume limits a root filesystem to a size in bytes; 0 means no limit. It
// does nothing where the pool keeps no limits.
func (d *Driver) limitVolume(path string, size int64) error {
	if !d.limitsRoots() {
		return nil
	}
	a := quotaArgs{flags: 1, referenced: uint64(size)}
	if size == 0 {
		a.referenced = ^uint64(0) // removes the limit
	}
	return ioctl(path, btrfsQgroupLimit, unsafe.Pointer(&a))
}

// removeVolume removes a root filesystem with the subvolumes that the guest made
// in it. A missing one is success. It refuses as refuseMounts does.
func (d *Driver) removeVolume(path string) error {
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	if err := d.refuseMounts(path); err != nil {
		return err
	}
	if s.Ino != btrfsRootInode {
		return os.RemoveAll(path)
	}
	// Two calls may remove the same volume at once, so what is missing is removed.
	parent, err := openFolder(unix.AT_FDCWD, filepath.Dir(path))
	if err != nil {
		return unless(err, os.ErrNotExist)
	}
	defer func() { _ = parent.Close() }()
	err = deleteSubvolume(parent, filepath.Base(path))
	if errors.Is(err, unix.ENOTEMPTY) {
		err = deleteWithInner(parent, filepath.Base(path))
	}
	return unless(err, os.ErrNotExist)
}

// refuseMounts fails if a filesystem is mounted on a path or below it, because a
// removal or change of all files of the path would reach the files of that
// filesystem. A bind mount may be of the same device, so only the table of mounts
// tells. It is read for this thread: the first thread of the process may be in a
// guest (see inGuest).
func (d *Driver) refuseMounts(path string) error {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path)) // as the table has it
	if err != nil {
		return unless(err, os.ErrNotExist)
	}
	path = filepath.Join(parent, filepath.Base(path))
	points, err := readMountPoints(filepath.Join(d.opts.Proc, "thread-self/mountinfo"))
	if err != nil {
		return err
	}
	for point := range points {
		if point == path || strings.HasPrefix(point, path+"/") {
			return fault.New(fault.NeedsOperator, "a filesystem is mounted on %s, whose files would be removed or changed too: run umount %s", point, point)
		}
	}
	return nil
}

// deleteWithInner deletes a subvolume after those that the guest made inside.
func deleteWithInner(parent *os.File, name string) error {
	f, err := openFolder(int(parent.Fd()), name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	// The guest may have made it read-only, and the kernel deletes nothing in it then.
	var writable uint64
	if err := ioctlOn(f, btrfsSubvolSetFlags, unsafe.Pointer(&writable)); err != nil {
		return err
	}
	if err := deleteInner(f); err != nil {
		return fmt.Errorf("cannot remove a subvolume that the guest made: %w", err)
	}
	return deleteSubvolume(parent, name)
}

// deleteInner deletes the subvolumes below a folder. It opens each folder in the
// one above, because a guest can make paths that are too long for the kernel.
func deleteInner(f *os.File) error {
	entries, err := f.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		var s unix.Stat_t
		if err := unix.Fstatat(int(f.Fd()), e.Name(), &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if s.Ino == btrfsRootInode {
			err = deleteWithInner(f, e.Name())
		} else if sub, open := openFolder(int(f.Fd()), e.Name()); open != nil {
			err = open
		} else {
			err = errors.Join(deleteInner(sub), sub.Close())
		}
		if err = unless(err, os.ErrNotExist); err != nil {
			return err
		}
	}
	return nil
}

// unless returns nil for an error of this kind.
func unless(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

func deleteSubvolume(parent *os.File, name string) error {
	var a volumeArgs
	copy(a.name[:], name)
	return ioctlOn(parent, btrfsSubvolDelete, unsafe.Pointer(&a))
}
