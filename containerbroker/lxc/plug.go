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
	if g.Device != "" {
		rule, err := deviceRule(g.Source, g.ReadOnly)
		if err != nil {
			return err
		}
		if err := d.permit(ctx, e.name, "allow", rule); err != nil {
			return err
		}
	}
	tree, err := d.openDisk(ctx, e, name, g)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	return d.mountDisk(ctx, e, pid, tree, g)
}

// openDisk copies the mount of a disk's source, as the guest is to see it.
func (d *Driver) openDisk(ctx context.Context, e entry, name string, g givenDisk) (tree int, err error) {
	source := g.Source
	if g.Device != "" {
		source = nodePath(e.dir, name)
	}
	tree, err = unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return -1, fault.New(fault.Transient, "cannot open its disk %s: %w", source, err)
	}
	// A copy of a shared mount is its peer: a mount that the guest makes below
	// it would appear on the host and in other guests.
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if g.readOnlyMount() {
		attr.Attr_set = unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		_ = unix.Close(tree)
		return -1, fmt.Errorf("cannot set the attributes of disk %s: %w", name, err)
	}
	if !g.readOnlyMount() {
		return tree, nil
	}
	locked, err := d.lockAttributes(ctx, tree, source)
	_ = unix.Close(tree)
	return locked, fault.Explain(err, "cannot make disk %s read-only", name)
}

// readOnlyMount reports whether the mount itself is read-only. A device has a node
// without the right to write.
func (g givenDisk) readOnlyMount() bool { return g.ReadOnly && g.Device == "" }

// mountDisk mounts an opened disk in a guest, unless it is mounted there already.
func (d *Driver) mountDisk(ctx context.Context, e entry, pid, tree int, g givenDisk) error {
	uid, gid := d.guestRoot(privileged(e.conf))
	return d.inGuest(ctx, pid, func(root int) error {
		to, err := reach(root, g.target(), g.Device != "", uid, gid)
		if err != nil {
			return fmt.Errorf("cannot reach %s in the guest: %w", g.target(), err)
		}
		defer func() { _ = unix.Close(to) }()
		if same, err := alike(tree, to, g.readOnlyMount()); same || err != nil {
			return err
		}
		err = unix.MoveMount(tree, "", to, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
		return fault.Explain(err, "cannot mount on %s in the guest", g.target())
	})
}

// unplugDisk unmounts a disk in a running guest. It succeeds if the guest has
// unmounted the disk itself.
func (d *Driver) unplugDisk(ctx context.Context, e entry, pid int, g givenDisk) error {
	target := g.target()
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
