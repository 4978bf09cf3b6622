package lxc

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// plugDisk mounts a disk in a running guest. It succeeds if the disk is mounted
// there already.
func (d *Driver) plugDisk(ctx context.Context, e entry, pid int, name string, g givenDisk) error {
	source, target := g.Source, g.Path
	if g.Device != "" {
		source, target = nodePath(e.dir, name), g.Device
		rule, err := deviceRule(g.Source, g.ReadOnly)
		if err != nil {
			return err
		}
		if err := d.permit(ctx, e.name, "allow", rule); err != nil {
			return err
		}
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fault.New(fault.Transient, "cannot open its disk %s: %w", source, err)
	}
	defer func() { _ = unix.Close(tree) }()
	readOnly := g.ReadOnly && g.Device == ""
	// A copy of a shared mount is its peer: a mount that the guest makes below
	// it would appear on the host and in other guests.
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if readOnly {
		attr.Attr_set = unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("cannot set the attributes of disk %s: %w", name, err)
	}
	uid, gid := d.guestRoot(privileged(e.conf))
	return d.inGuest(ctx, pid, func(root int) error {
		to, err := reach(root, target, g.Device != "", uid, gid)
		if err != nil {
			return fmt.Errorf("cannot reach %s in the guest: %w", target, err)
		}
		defer func() { _ = unix.Close(to) }()
		if same, err := alike(tree, to, readOnly); same || err != nil {
			return err
		}
		err = unix.MoveMount(tree, "", to, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
		return fault.Explain(err, "cannot mount on %s in the guest", target)
	})
}

// unplugDisk unmounts a disk in a running guest. It succeeds if the guest has
// unmounted the disk itself.
func (d *Driver) unplugDisk(ctx context.Context, e entry, pid int, g givenDisk) error {
	target := g.Path
	if g.Device != "" {
		target = g.Device
	}
	err := d.inGuest(ctx, pid, func(int) error {
		err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return nil
		}
		if err == nil && g.Device != "" {
			_ = unix.Unlink(target) // the empty file under the node
		}
		return err
	})
	if err != nil || g.Device == "" {
		return err
	}
	rule, err := deviceRule(g.Source, false)
	if err != nil {
		return nil // the device is gone, and its number with it
	}
	return d.permit(ctx, e.name, "deny", rule)
}
