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

// flags are the mount options that are bits for the kernel, not text for the
// filesystem; false clears the bit.
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

// Options turns mount options, one per entry, into the two forms that the
// kernel takes. An entry that would be taken for several, or that is for
// programs and not for the kernel, is fault.Invalid.
func Options(list []string) (bits uintptr, data string, err error) {
	var rest []string
	for _, o := range list {
		switch flag, known := flags[o]; {
		case o == "" || strings.ContainsAny(o, ", \t\n\x00\\"):
			return 0, "", fault.New(fault.Invalid, "%q is no mount option", o)
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

// onError is the option with which ext4 stops writing to what is damaged; the
// other types do that by themselves. Its superblock, which a guest may have
// written, says otherwise, e.g. errors=panic stops the host.
const onError = "errors=remount-ro"

// Mount mounts source on the point, restricted as by Restrict whatever the
// options say.
func (p *Point) Mount(source, fstype string, bits uintptr, data string) error {
	bits |= unix.MS_NOSUID | unix.MS_NODEV
	if fstype == "ext4" {
		data = strings.TrimPrefix(data+","+onError, ",") // the last holds
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

// Restricted says whether a mount is as Restrict leaves it.
func Restricted(m *mountinfo.Info) bool {
	options := strings.Split(m.Options, ",")
	return slices.Contains(options, "nosuid") && slices.Contains(options, "nodev") && (m.FSType != "ext4" || stopsOnError(m))
}

// stopsOnError reads what the kernel does not list among the options: those
// that are the same as in the superblock (s_errors, at 0x3C; 2 is remount-ro).
func stopsOnError(m *mountinfo.Info) bool {
	for o := range strings.SplitSeq(m.VFSOptions, ",") {
		if strings.HasPrefix(o, "errors=") {
			return o == onError
		}
	}
	device, err := os.Open(m.Source)
	if err != nil {
		return true // it cannot be told, and is not to be tried again and again
	}
	defer device.Close()
	var field [2]byte
	_, err = device.ReadAt(field[:], 1024+0x3c)
	return err != nil || binary.LittleEndian.Uint16(field[:]) == 2
}

// Restrict lets no setuid program and no device of the uppermost mount at path
// act on the host (nosuid, nodev), and sets errors=remount-ro where the
// filesystem has it. Nothing that has files open there notices. Idempotent.
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
	if err != nil {
		return fmt.Errorf("cannot set %s on %s: %w", onError, path, err)
	}
	return nil
}

// Bind shows the directory at source on the point as well.
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
	// Read-only takes a second call, and the point's descriptor is now below
	// the mount.
	if err := unix.MountSetattr(unix.AT_FDCWD, p.Path, unix.AT_SYMLINK_NOFOLLOW, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		_ = unix.Unmount(p.Path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		return fmt.Errorf("cannot make %s read-only: %w", p.Path, err)
	}
	return nil
}

// Unmount takes the uppermost mount at path away. One in use is a BusyError
// with the processes found in proc, unless force takes it out of sight at
// once.
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

// UnmountOnly is Unmount for one certain mount: it is a BusyError when another
// one covers it.
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
		if below := table.Below(path); len(below) > 0 {
			return storage.Busy(path, "something is mounted below it at "+below[len(below)-1].Mountpoint, nil)
		}
	}
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return storage.Busy(path, "", nil)
	}
	return storage.Busy(path, "", Holders(proc, Used{FS: s.Dev}))
}

// Share makes the folder a mount whose later mounts come and go in every mount
// namespace that was copied from this one, too. Without that, a namespace made
// while a filesystem was mounted, such as that of a container's daemon, would
// keep it and its device for ever. Where the host's root is shared, as systemd
// makes it, nothing is to be done, and where it was done before.
func Share(dir string) error {
	table, err := Read("/proc")
	if err != nil {
		return err
	}
	on := table.Holding(dir)
	if on != nil && strings.Contains(on.Optional, "shared:") {
		return nil
	}
	if on == nil || on.Mountpoint != dir {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot share %s: %w", dir, err)
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("cannot share %s: %w", dir, err)
	}
	return nil
}

// Unshare takes back what Share did to the folder, when nothing is mounted
// below it any more, and removes it with the empty folders below it and above
// it, up to and without root. Where nothing is to be done it does nothing.
func Unshare(dir, root string) error {
	table, err := Read("/proc")
	if err != nil || len(table.Below(dir)) > 0 {
		return err
	}
	for range table.At(dir) {
		if err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("cannot give up %s: %w", dir, err)
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

// Usage returns the size of the filesystem mounted at path and what an
// ordinary user may still write, in bytes.
func Usage(path string) (size, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, fmt.Errorf("cannot ask for the space of %s: %w", path, err)
	}
	return int64(s.Blocks) * s.Frsize, int64(s.Bavail) * s.Frsize, nil
}
