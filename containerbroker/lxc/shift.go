package lxc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// shift changes the owners of all files of a root filesystem from those of an
// unprivileged guest to those of a privileged one, or back. It moves only ids
// of the other kind, so an interrupted run can be repeated. It keeps setuid
// bits, file capabilities and ACLs. The guest must not run.
func (d *Driver) shift(ctx context.Context, root string, privileged bool) error {
	s := shifter{ids: d.opts.IDs, back: privileged}
	s.ids.Count = min(s.ids.Count, 65536)
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: root, Err: err}
	}
	f := os.NewFile(uintptr(dir), root)
	defer func() { _ = f.Close() }()
	if err := s.folder(ctx, f); err != nil {
		return fmt.Errorf("cannot change the owners of its files: %w", err)
	}
	return s.one(filepath.Dir(root), filepath.Base(root))
}

type shifter struct {
	ids  IDs
	back bool
}

// folder shifts the content of a folder. It reaches each file from its folder's
// descriptor and follows no link.
func (s shifter) folder(ctx context.Context, f *os.File) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			fd, err := unix.Openat(int(f.Fd()), e.Name(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				return &os.PathError{Op: "open", Path: e.Name(), Err: err}
			}
			sub := os.NewFile(uintptr(fd), e.Name())
			err = s.folder(ctx, sub)
			if err := errors.Join(err, sub.Close()); err != nil {
				return err
			}
		}
		if err := s.one(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// The extended attributes that hold ids.
const (
	attrCapability = "security.capability"
	attrACL        = "system.posix_acl_access"
	attrDefaultACL = "system.posix_acl_default"
)

// one shifts a file in a folder.
func (s shifter) one(dir, name string) error {
	path := filepath.Join(dir, name)
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return &os.PathError{Op: "lstat", Path: name, Err: err}
	}
	uid, gid := s.id(stat.Uid, s.ids.FirstUser), s.id(stat.Gid, s.ids.FirstGroup)
	attrs := map[string][]byte{}
	if stat.Mode&unix.S_IFMT != unix.S_IFLNK {
		for _, key := range []string{attrCapability, attrACL, attrDefaultACL} {
			value := make([]byte, 4096)
			if n, err := unix.Lgetxattr(path, key, value); err == nil {
				attrs[key] = value[:n]
			}
		}
	}
	if uid != stat.Uid || gid != stat.Gid {
		// The kernel drops setuid bits and capabilities with the owner.
		if err := unix.Lchown(path, int(uid), int(gid)); err != nil {
			return &os.PathError{Op: "chown", Path: name, Err: err}
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFLNK {
			if err := unix.Chmod(path, stat.Mode&0o7777); err != nil {
				return &os.PathError{Op: "chmod", Path: name, Err: err}
			}
		}
	}
	for key, value := range attrs {
		if key == attrCapability {
			value = s.capability(value)
		} else {
			value = s.acl(value)
		}
		if err := unix.Lsetxattr(path, key, value, 0); err != nil {
			return &os.PathError{Op: "setxattr", Path: name, Err: err}
		}
	}
	return nil
}

// id returns the shifted id. Ids of the wanted kind, and of neither, stay.
func (s shifter) id(id, first uint32) uint32 {
	switch {
	case s.back && id >= first && id-first < s.ids.Count:
		return id - first
	case !s.back && id < s.ids.Count && id < first:
		return id + first
	}
	return id
}
