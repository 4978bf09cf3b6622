package lxc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"hostler/containerbroker/images"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// unpack unpacks the root filesystem of an image into an empty folder. The
// program runs as the guests' own root, so owners, capabilities and ACLs come
// out with the guests' ids, and the image's content meets no root of the host.
func (d *Driver) unpack(ctx context.Context, a images.Artifact, to string) error {
	uid, gid := d.guestRoot(false)
	if err := os.Lchown(to, uid, gid); err != nil {
		return err
	}
	packed, args, program := a.Rootfs, []string{"-q", "-n", "-f", "-no-exit-code", "-d", to}, paths.Unsquashfs
	if packed == "" {
		packed, program = a.Path, paths.Tar
		args = []string{"-x", "-p", "--numeric-owner", "--xattrs", "--xattrs-include=*", "--acls", "--strip-components=1", "--exclude=*/dev/*", "-C", to, "-f"}
	}
	// The cache's file belongs to the host's root alone.
	copied := to + ".packed"
	if err := copyFile(packed, copied, uid, gid); err != nil {
		return err
	}
	defer func() { _ = os.Remove(copied) }()
	if err := failpoint.Hit(failpoint.LXCUnpacking); err != nil {
		return err
	}
	args = append(args, copied)
	if program == paths.Tar {
		args = append(args, "--wildcards", "rootfs/*")
	}
	count := int(min(d.opts.IDs.Count, 65536))
	_, err := d.opts.Runner.Run(ctx, run.Command{
		Path: program, Args: args, Dir: "/", Timeout: 30 * time.Minute,
		Users: &run.UserNamespace{FirstUser: uid, Users: count, FirstGroup: gid, Groups: count, Root: true},
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// Device nodes cannot be made in a user namespace, and guests do not need
	// them: liblxc mounts a folder with nodes on /dev.
	if why := hasInit(to); why != nil {
		return fault.New(fault.Invalid, "its root filesystem cannot be unpacked: %v", errors.Join(why, err))
	}
	return nil
}

// hasInit fails if a root filesystem has no program for process 1.
func hasInit(root string) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for _, name := range []string{"sbin/init", "usr/sbin/init", "init"} {
		if _, err = r.Lstat(name); err == nil {
			return nil
		}
	}
	return fmt.Errorf("it has no init: %w", err)
}

// copyFile makes a copy that only its owner can read. On btrfs and XFS the copy
// shares the blocks of the original.
func copyFile(from, to string, uid, gid int) error {
	in, err := os.Open(filepath.Clean(from))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chown(uid, gid), out.Close())
}
