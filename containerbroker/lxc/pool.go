package lxc

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ioctls of btrfs and their arguments, from linux/btrfs.h.
const (
	btrfsSnapshotCreate = 0x50009417 // _IOW(0x94, 23, struct btrfs_ioctl_vol_args_v2)
	btrfsSubvolCreate   = 0x5000940e // _IOW(0x94, 14, struct btrfs_ioctl_vol_args)
	btrfsSubvolDelete   = 0x5000940f // _IOW(0x94, 15, struct btrfs_ioctl_vol_args)
	btrfsSubvolSetFlags = 0x4008941a // _IOW(0x94, 26, __u64)
	btrfsQgroupLimit    = 0x8030942b // _IOR(0x94, 43, struct btrfs_ioctl_qgroup_limit_args)

	// btrfsRootInode is the inode of the root of every subvolume.
	btrfsRootInode = 256
)

// volumeArgs is struct btrfs_ioctl_vol_args.
type volumeArgs struct {
	fd   int64
	name [4088]byte
}

// snapshotArgs is struct btrfs_ioctl_vol_args_v2.
type snapshotArgs struct {
	fd      int64
	transid uint64
	flags   uint64
	unused  [4]uint64
	name    [4040]byte
}

// quotaArgs is struct btrfs_ioctl_qgroup_limit_args. Flag 1 limits the referenced
// bytes.
type quotaArgs struct{ qgroup, flags, referenced, exclusive, reserved, reservedExclusive uint64 }

func ioctl(dir string, request uintptr, arg unsafe.Pointer) error {
	f, err := openFolder(unix.AT_FDCWD, dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return ioctlOn(f, request, arg)
}

func ioctlOn(f *os.File, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
		return &os.PathError{Op: "ioctl", Path: f.Name(), Err: errno}
	}
	return nil
}

// openFolder opens a folder by its name in another. It follows no link.
func openFolder(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// onBtrfs reports whether the pool can make snapshots and keep limits.
func (d *Driver) onBtrfs() bool {
	var s unix.Statfs_t
	return unix.Statfs(d.pool(), &s) == nil && s.Type == unix.BTRFS_SUPER_MAGIC
}

// limitsRoots reports whether the pool keeps the limits of root filesystems. A
// pool of a file does. A folder on the host's own btrfs does not, because its
// quotas are the administrator's.
func (d *Driver) limitsRoots() bool {
	_, err := os.Lstat(d.own("pool.img"))
	return err == nil && d.onBtrfs()
}
