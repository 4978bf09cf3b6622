package lxc

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"hostler/internal/run"
)

// lockAttributes returns a copy of a detached mount whose attributes, e.g.
// read-only, the guest's root cannot remove. When the kernel copies mounts into
// a mount namespace of another user namespace, it locks their attributes (see
// mount_namespaces(7)), and a copy of such a mount keeps the locks. So
// lockAttributes mounts tree on the folder at in a copy of the host's mounts,
// lets the kernel copy these into a user namespace, and takes the mount from
// there.
func (d *Driver) lockAttributes(ctx context.Context, tree int, at string) (locked int, err error) {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		done <- func() error {
			home, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(home) }()
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("cannot copy the host's mounts: %w", err)
			}
			// The first thread of the process does not end. It would keep the
			// filesystems of the copy in use.
			defer func() { _ = unix.Setns(home, unix.CLONE_NEWNS) }()
			// The mount below stays in the copy, and unmounts of the host reach it.
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
				return fmt.Errorf("cannot separate the copy of the host's mounts: %w", err)
			}
			if err := unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
				return fmt.Errorf("cannot mount it in the copy of the host's mounts: %w", err)
			}
			mounts, err := d.copyOfMounts(ctx)
			if err != nil {
				return fmt.Errorf("cannot make a user namespace with the host's mounts: %w", err)
			}
			defer func() { _ = unix.Close(mounts) }()
			if err := unix.Setns(mounts, unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("cannot enter the user namespace's mounts: %w", err)
			}
			locked, err = unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
			return err
		}()
	}()
	if err := <-done; err != nil {
		return -1, err
	}
	return locked, nil
}

// copyOfMounts opens a mount namespace of a new user namespace, with a copy of the
// calling thread's mounts. run.Host starts the program from that thread.
func (d *Driver) copyOfMounts(ctx context.Context) (mounts int, err error) {
	ids := run.UserNamespace{
		FirstUser: int(d.opts.IDs.FirstUser), Users: int(d.opts.IDs.Count),
		FirstGroup: int(d.opts.IDs.FirstGroup), Groups: int(d.opts.IDs.Count), Mounts: true,
	}
	mounts = -1
	err = ids.Hold(ctx, run.Host{}, func(pid int) (err error) {
		mounts, err = unix.Open(d.process(pid, "ns/mnt"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil && mounts >= 0 {
		_ = unix.Close(mounts)
	}
	return mounts, err
}
