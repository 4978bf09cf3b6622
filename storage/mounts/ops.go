package mounts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/mountoption"
	"hostler/storage"
)

// flags are the mount options that the kernel takes as bits instead of text. An
// option whose set is false clears the bit.
var flags = map[string]struct {
	bit uintptr
	set bool
}{
	"ro": {unix.MS_RDONLY, true}, "rw": {unix.MS_RDONLY, false},
	"nosuid": {unix.MS_NOSUID, true}, "suid": {unix.MS_NOSUID, false},
	"nodev": {unix.MS_NODEV, true}, "dev": {unix.MS_NODEV, false},
	"noexec": {unix.MS_NOEXEC, true}, "exec": {unix.MS_NOEXEC, false},
	"sync": {unix.MS_SYNCHRONOUS, true}, "async": {unix.MS_SYNCHRONOUS, false},
	"dirsync": {unix.MS_DIRSYNC, true},
	"noatime": {unix.MS_NOATIME, true}, "atime": {unix.MS_NOATIME, false},
	"nodiratime": {unix.MS_NODIRATIME, true}, "diratime": {unix.MS_NODIRATIME, false},
	"relatime": {unix.MS_RELATIME, true}, "norelatime": {unix.MS_RELATIME, false},
	"strictatime": {unix.MS_STRICTATIME, true}, "nostrictatime": {unix.MS_STRICTATIME, false},
	"lazytime": {unix.MS_LAZYTIME, true}, "nolazytime": {unix.MS_LAZYTIME, false},
	"defaults": {},
}

// Options converts mount options, one per entry, into the two forms that
// mount(2) takes. The error is fault.Invalid for an entry that holds several
// options or that is for programs instead of the kernel.
func Options(list []string) (bits uintptr, data string, err error) {
	var rest []string
	for _, o := range list {
		switch flag, known := flags[o]; {
		case o == "" || strings.ContainsAny(o, ", \t\n\x00\\"):
			return 0, "", fault.New(fault.Invalid, "%q is not a mount option", o)
		case known && flag.set:
			bits |= flag.bit
		case known:
			bits &^= flag.bit
		case mountoption.ForPrograms(o):
			return 0, "", fault.New(fault.Invalid, "the mount option %q is not for the kernel", o)
		default:
			rest = append(rest, o)
		}
	}
	return bits, strings.Join(rest, ","), nil
}

// onError makes ext4 read-only after an error; the other types do that by
// default. The superblock, which a guest may have written, can set another
// default, e.g. errors=panic, which stops the host.
const onError = "errors=remount-ro"

// Mount mounts source on the point, always restricted as by Restrict.
func (p *Point) Mount(source, fstype string, bits uintptr, data string) error {
	bits |= unix.MS_NOSUID | unix.MS_NODEV
	if fstype == "ext4" {
		data = strings.TrimPrefix(data+","+onError, ",") // the last option counts
	}
	err := unix.Mount(source, p.self(), fstype, bits, data)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL):
		return fault.New(fault.NeedsOperator, "cannot mount %s on %s as %s: the kernel refuses it; the options %q or the filesystem are wrong", source, p.Path, fstype, data)
	case errors.Is(err, unix.ENODEV):
		return fault.New(fault.NeedsOperator, "cannot mount %s: the kernel has no %s", source, fstype)
	case errors.Is(err, unix.EUCLEAN):
		return fault.New(fault.NeedsOperator, "cannot mount %s: the %s on it is damaged; check it with fsck", source, fstype)
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES):
		return fault.New(fault.NeedsOperator, "cannot mount %s on %s for writing: the device is read-only", source, p.Path)
	case errors.Is(err, unix.EBUSY):
		return storage.Busy(source, "it cannot be mounted on "+p.Path, nil)
	}
	return fmt.Errorf("cannot mount %s on %s as %s: %w", source, p.Path, fstype, err)
}

// Restricted reports whether a mount has the options that Restrict sets.
func Restricted(m *mountinfo.Info) bool {
	options := strings.Split(m.Options, ",")
	return slices.Contains(options, "nosuid") && slices.Contains(options, "nodev") && (m.FSType != "ext4" || stopsOnError(m))
}

// stopsOnError reports whether ext4 remounts read-only on errors. The kernel
// lists the option only if it differs from the superblock's setting (s_errors
// at 0x3C; 2 is remount-ro).
func stopsOnError(m *mountinfo.Info) bool {
	for o := range strings.SplitSeq(m.VFSOptions, ",") {
		if strings.HasPrefix(o, "errors=") {
			return o == onError
		}
	}
	device, err := os.Open(m.Source)
	if err != nil {
		return true // not known, and a retry would not help
	}
	defer device.Close()
	var field [2]byte
	_, err = device.ReadAt(field[:], 1024+0x3c)
	return err != nil || binary.LittleEndian.Uint16(field[:]) == 2
}

// Restrict sets nosuid and nodev on the uppermost mount at path, and
// errors=remount-ro on ext4. The host then ignores the mount's setuid bits and
// device nodes. Open files are not affected. Restrict is idempotent.
func Restrict(path, fstype string) error {
	flags := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, &flags); err != nil {
		return fmt.Errorf("cannot set nosuid and nodev on %s: %w", path, err)
	}
	if fstype != "ext4" {
		return nil
	}
	fd, err := unix.Fspick(unix.AT_FDCWD, path, unix.FSPICK_CLOEXEC|unix.FSPICK_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("cannot set %s on %s: %w", onError, path, err)
	}
	defer unix.Close(fd)
	name, value, _ := strings.Cut(onError, "=")
	if err = unix.FsconfigSetString(fd, name, value); err == nil {
		err = unix.FsconfigReconfigure(fd)
	}
	return fault.Explain(err, "cannot set %s on %s", onError, path)
}

// Bind makes the directory at source visible on the point too (a bind mount).
func (p *Point) Bind(source string, readOnly bool) error {
	from, err := OpenPoint(source)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := unix.Mount(from.self(), p.self(), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot bind %s on %s: %w", source, p.Path, err)
	}
	if !readOnly {
		return nil
	}
	// Set read-only by path, because the point's descriptor refers to the
	// directory below the new mount.
	if err := unix.MountSetattr(unix.AT_FDCWD, p.Path, unix.AT_SYMLINK_NOFOLLOW, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		_ = unix.Unmount(p.Path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		return fmt.Errorf("cannot make %s read-only: %w", p.Path, err)
	}
	return nil
}

// Unmount unmounts the uppermost mount at path. The error for a busy mount is a
// BusyError with the processes found in proc. With force, the mount is detached
// at once (MNT_DETACH).
func Unmount(proc, path string, force bool) error {
	if err := failpoint.Hit(failpoint.Unmounting); err != nil {
		return err
	}
	bits := unix.UMOUNT_NOFOLLOW
	if force {
		bits |= unix.MNT_DETACH
	}
	err := unix.Unmount(path, bits)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return busy(proc, path)
	}
	return fmt.Errorf("cannot unmount %s: %w", path, err)
}

// UnmountOnly unmounts m, but no mount above m. If another mount covers m, the
// error is a BusyError.
func UnmountOnly(proc string, m *mountinfo.Info, force bool) error {
	table, err := Read(proc)
	if err != nil {
		return err
	}
	switch top := table.Top(m.Mountpoint); {
	case top == nil:
		return nil
	case top.ID != m.ID:
		return storage.Busy(m.Mountpoint, top.Source+" is mounted over it", nil)
	}
	return Unmount(proc, m.Mountpoint, force)
}

func busy(proc, path string) error {
	if table, err := Read(proc); err == nil {
		if below := table.below(path); len(below) > 0 {
			return storage.Busy(path, "another mount is below it at "+below[len(below)-1].Mountpoint, nil)
		}
	}
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return storage.Busy(path, "", nil)
	}
	return storage.Busy(path, "", Holders(proc, Used{FS: s.Dev}))
}

// Share makes the directory a shared mount, so that later mounts and unmounts
// below it propagate to mount namespaces copied from this namespace. Without
// propagation, a namespace copied while a filesystem was mounted, e.g. the
// namespace of a container daemon, would keep the filesystem and its device
// busy. Share does nothing if the mount that contains dir is already shared,
// e.g. by systemd, which shares the host's root.
func Share(dir string) error {
	table, err := Read("/proc")
	if err != nil {
		return err
	}
	on := table.holding(dir)
	if on != nil && strings.Contains(on.Optional, "shared:") {
		return nil
	}
	if on == nil || on.Mountpoint != dir {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot share %s: %w", dir, err)
		}
	}
	return fault.Explain(unix.Mount("", dir, "", unix.MS_SHARED, ""), "cannot share %s", dir)
}

// Unshare reverts Share, unless something is mounted below the directory. It
// then removes the directory with its empty subdirectories and its empty
// parents below root. Unshare is idempotent.
func Unshare(dir, root string) error {
	table, err := Read("/proc")
	if err != nil || len(table.below(dir)) > 0 {
		return err
	}
	for range table.At(dir) {
		if err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("cannot make %s private: %w", dir, err)
		}
	}
	inside, _ := os.ReadDir(dir)
	for _, e := range inside {
		_ = unix.Rmdir(filepath.Join(dir, e.Name()))
	}
	for ; dir != root && strings.HasPrefix(dir, root+"/") && unix.Rmdir(dir) == nil; dir = filepath.Dir(dir) {
		continue
	}
	return nil
}

// Usage returns the size of the filesystem at path and the space that an
// unprivileged user may still write, in bytes.
func Usage(path string) (size, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, fmt.Errorf("cannot ask for the space of %s: %w", path, err)
	}
	return int64(s.Blocks) * s.Frsize, int64(s.Bavail) * s.Frsize, nil
}
