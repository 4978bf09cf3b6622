// Package mounts mounts and unmounts directories idempotently. It reads the
// mount table first, names the processes that keep a mount busy, and never
// follows a symbolic link.
package mounts

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/storage"
)

// Table is the mount table of this process's mount namespace, in the order of
// mounting.
type Table []*mountinfo.Info

// Read reads the table from the proc filesystem at proc.
func Read(proc string) (Table, error) {
	f, err := os.Open(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("cannot list mounts: %w", err)
	}
	defer f.Close()
	all, err := mountinfo.GetMountsFromReader(bufio.NewReader(f), nil)
	return all, fault.Explain(err, "cannot list mounts")
}

// once holds a table that is read on first use.
type once struct {
	sync.Mutex
	proc  string
	table Table
}

type onceKey struct{}

// Once returns a context for one observation of the host. All calls of In with
// this context share one table, which may have thousands of entries.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, &once{}) }

// In returns the table as Read does, but reads it only once per context of
// Once.
func In(ctx context.Context, proc string) (Table, error) {
	o, _ := ctx.Value(onceKey{}).(*once)
	if o == nil {
		return Read(proc)
	}
	o.Lock()
	defer o.Unlock()
	if o.table == nil || o.proc != proc {
		table, err := Read(proc)
		if err != nil {
			return nil, err
		}
		o.proc, o.table = proc, table
	}
	return o.table, nil
}

// At returns the mounts at path, lowest first.
func (t Table) At(path string) (at Table) {
	for _, m := range t {
		if m.Mountpoint == path {
			at = append(at, m)
		}
	}
	return at
}

// Top returns the visible mount at path, or nil if nothing is mounted there.
func (t Table) Top(path string) *mountinfo.Info {
	if at := t.At(path); len(at) > 0 {
		return at[len(at)-1]
	}
	return nil
}

// Of returns the mounts for which is() returns true.
func (t Table) Of(is func(*mountinfo.Info) bool) (of Table) {
	for _, m := range t {
		if is(m) {
			of = append(of, m)
		}
	}
	return of
}

// OfDevice returns the mounts of a block device.
func (t Table) OfDevice(device string, number uint64) Table {
	return t.Of(Used{Block: number, Device: device}.mounted)
}

// holding returns the mount that contains the path, or nil.
func (t Table) holding(path string) (on *mountinfo.Info) {
	for _, m := range t {
		under := m.Mountpoint == "/" || m.Mountpoint == path || strings.HasPrefix(path, m.Mountpoint+"/")
		if under && (on == nil || len(m.Mountpoint) >= len(on.Mountpoint)) {
			on = m
		}
	}
	return on
}

// below returns the mounts strictly below path.
func (t Table) below(path string) Table {
	return t.Of(func(m *mountinfo.Info) bool { return strings.HasPrefix(m.Mountpoint, path+"/") })
}

// ReadOnly reports whether the mount or its filesystem is read-only.
func ReadOnly(m *mountinfo.Info) bool {
	return slices.Contains(strings.Split(m.Options, ","), "ro") || slices.Contains(strings.Split(m.VFSOptions, ","), "ro")
}

// Failed reports whether the kernel made a filesystem read-only after errors of
// its device.
func Failed(m *mountinfo.Info) bool {
	all := strings.Split(m.VFSOptions, ",")
	return slices.Contains(all, "emergency_ro") || slices.Contains(all, "shutdown") ||
		slices.Contains(all, "ro") && !slices.Contains(strings.Split(m.Options, ","), "ro")
}

// Point is a directory to mount on. It is held open, so that a later rename
// cannot redirect the mount.
type Point struct {
	Path string
	dir  *os.File
	made bool
}

// OpenPoint opens the mount point at path; it creates a missing directory with
// mode 0755. No part of the path may be a symbolic link. The caller must close
// the point.
func OpenPoint(path string) (*Point, error) {
	if err := storage.ValidatePath(path); err != nil {
		return nil, err
	}
	_, missing := os.Lstat(path)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the mount point: %w", err)
	}
	fd, err := openStepwise(path)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fault.New(fault.NeedsOperator, "cannot mount on %s: a symbolic link is on the way", path)
	case errors.Is(err, unix.ENOTDIR):
		return nil, fault.New(fault.NeedsOperator, "cannot mount on %s: it is not a directory", path)
	case err != nil:
		return nil, fmt.Errorf("cannot open the mount point %s: %w", path, err)
	}
	return &Point{Path: path, dir: os.NewFile(uintptr(fd), path), made: missing != nil}, nil
}

// openStepwise opens a directory. It returns ELOOP if there is a symbolic link
// on the way. openat2(2) does this in one step, but systemd's RestrictSUIDSGID=
// disables openat2(2).
func openStepwise(path string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Open("/", flags, 0)
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if err != nil {
			return -1, err
		}
		var next int
		next, err = unix.Openat(fd, name, flags, 0)
		var st unix.Stat_t
		if errors.Is(err, unix.ENOTDIR) && unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			err = unix.ELOOP
		}
		_ = unix.Close(fd)
		fd = next
	}
	return fd, err
}

// Close closes the directory.
func (p *Point) Close() error { return p.dir.Close() }

// GiveUp removes the directory if OpenPoint created it.
func (p *Point) GiveUp() {
	if p.made {
		Remove(p.Path)
	}
}

// self returns a path that leads to the open directory itself.
func (p *Point) self() string { return fmt.Sprintf("/proc/self/fd/%d", p.dir.Fd()) }

// Empty refuses a directory with contents (fault.NeedsOperator) and names up to
// five entries.
func (p *Point) Empty() error {
	const told = 5
	names, err := p.dir.Readdirnames(told + 1)
	if len(names) == 0 {
		if _, seek := p.dir.Seek(0, 0); seek != nil {
			return fmt.Errorf("cannot read %s: %w", p.Path, seek)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("cannot read %s: %w", p.Path, err)
		}
		return nil
	}
	slices.Sort(names)
	more := ""
	if len(names) > told {
		names, more = names[:told], " and more"
	}
	return fault.New(fault.NeedsOperator, "cannot mount on %s: the directory is not empty, it contains %q%s; move that away", p.Path, names, more)
}

// Remove removes the directory at path if it is empty and not a mount point;
// otherwise it does nothing.
func Remove(path string) { _ = unix.Rmdir(path) }
