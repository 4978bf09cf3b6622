package lxc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// alike reports whether the file at to is that of a copied mount, i.e. the mount
// is there already.
func alike(tree, to int, readOnly bool) (bool, error) {
	var a, b unix.Stat_t
	if err := errors.Join(unix.Fstat(tree, &a), unix.Fstat(to, &b)); err != nil {
		return false, err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(to, &fs); err != nil {
		return false, err
	}
	return a.Dev == b.Dev && a.Ino == b.Ino && (fs.Flags&unix.ST_RDONLY != 0) == readOnly, nil
}

// inGuest runs f in a thread that is in the mounts of a guest, with the guest's
// root folder. The thread ends with the call. The guest may make any file access
// hang, so inGuest returns at the end of ctx even if the thread does not.
func (d *Driver) inGuest(ctx context.Context, pid int, f func(root int) error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		done <- func() error {
			mounts, err := unix.Open(d.process(pid, "ns/mnt"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fault.New(fault.Transient, "its init has ended: %w", err)
			}
			defer func() { _ = unix.Close(mounts) }()
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("cannot enter its mounts: %w", err)
			}
			if err := unix.Setns(mounts, unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("cannot enter its mounts: %w", err)
			}
			root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(root) }()
			return f(root)
		}()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reach opens a path in the guest without following a link, and makes missing
// parts as the guest's root: the host's root has no id on a tmpfs of the guest.
// The last part is a file if file is true.
func reach(root int, path string, file bool, uid, gid int) (int, error) {
	parts := strings.Split(strings.Trim(filepath.Clean(path), "/"), "/")
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	}
	at, err := unix.Dup(root)
	for n, part := range parts {
		if err != nil {
			return -1, err
		}
		var next int
		next, err = unix.Openat2(at, part, &how)
		if errors.Is(err, unix.ENOENT) {
			if err = makeAs(at, part, file && n == len(parts)-1, uid, gid); err == nil {
				next, err = unix.Openat2(at, part, &how)
			}
		}
		_ = unix.Close(at)
		at = next
		if err != nil {
			err = &os.PathError{Op: "open", Path: part, Err: err}
		}
	}
	return at, err
}

// makeAs makes a folder or an empty file with the ids of the guest's root.
func makeAs(at int, name string, file bool, uid, gid int) error {
	if err := errors.Join(unix.Setfsgid(gid), unix.Setfsuid(uid)); err != nil {
		return err
	}
	defer func() { _, _ = unix.Setfsuid(0), unix.Setfsgid(0) }()
	if !file {
		return unix.Mkdirat(at, name, 0o755)
	}
	fd, err := unix.Openat(at, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
