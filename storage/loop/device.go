package loop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/pause"
	"hostler/storage"
)

// loopMajor is the major number of the loop driver, from the kernel's list of
// devices.
const loopMajor = 7

// tries bounds the attempts to get a free device. The number from the kernel is
// only a hint, because other processes may take the device first.
const tries = 64

// device is a loop device with a backing file.
type device struct {
	number int
	status unix.LoopInfo64
}

func (d device) readOnly() bool { return d.status.Flags&unix.LO_FLAGS_READ_ONLY != 0 }

// mark returns the name that a loop device of the volume carries. It identifies
// the device even when the device's file is missing. The kernel stores at most
// 63 bytes of a name.
func mark(r storage.Ref) string {
	sum := sha256.Sum256([]byte(r.Stamp.Namespace + "\x00" + r.Stamp.UID + "\x00" + r.ID))
	text := "hostler:" + hex.EncodeToString(sum[:8]) + ":" + r.ID
	return text[:min(len(text), 63)]
}

func (d device) marked(r storage.Ref) bool {
	return unix.ByteSliceToString(d.status.File_name[:]) == mark(r)
}

// leaving reports whether the device has r's mark and disappears with its last
// user. It does so after a forced detach and while it is being set up.
func (d device) leaving(r storage.Ref) bool {
	return d.marked(r) && d.status.Flags&unix.LO_FLAGS_AUTOCLEAR != 0
}

// belongs reports whether the device is the volume's. info describes the
// volume's file, or is nil.
func (d device) belongs(r storage.Ref, info fs.FileInfo) bool {
	return !d.leaving(r) && (d.marked(r) || info != nil && d.backedBy(info))
}

func (d device) backedBy(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && d.status.Device == s.Dev && d.status.Inode == s.Ino
}

func blocks(info fs.FileInfo) int64 {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return s.Blocks
}

// devices lists all loop devices that have a backing file, or returns an error.
func (s *Source) devices() ([]device, error) {
	all, err := os.ReadDir(filepath.Join(s.o.Sys, "block"))
	if err != nil {
		return nil, fmt.Errorf("cannot list loop devices: %w", err)
	}
	var found []device
	for _, entry := range all {
		name := entry.Name()
		text, ok := strings.CutPrefix(name, "loop")
		number, err := strconv.Atoi(text)
		if !ok || err != nil {
			continue
		}
		// An unused loop device has no such directory. There may be hundreds of
		// unused devices.
		if unix.Access(filepath.Join(s.o.Sys, "block", name, "loop"), unix.F_OK) != nil {
			continue
		}
		d, err := s.look(number)
		switch {
		case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV): // detached meanwhile
		case errors.Is(err, os.ErrPermission) && !s.ourFile(name): // another program's device, seen from a container
		case err != nil:
			return nil, fmt.Errorf("cannot look at %s: %w", name, err)
		default:
			found = append(found, d)
		}
	}
	return found, nil
}

// ourFile returns false if sysfs shows that the file behind a device is not
// this source's. It serves for devices that the process lacks the permission to
// open.
func (s *Source) ourFile(name string) bool {
	file, err := os.ReadFile(filepath.Join(s.o.Sys, "block", name, "loop", "backing_file"))
	return err != nil || strings.HasPrefix(string(file), s.o.Dir+"/")
}

func (s *Source) look(number int) (device, error) {
	f, err := s.openDevice(number, os.O_RDONLY)
	if err != nil {
		return device{}, err
	}
	defer f.Close()
	status, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return device{}, err
	}
	return device{number: number, status: *status}, nil
}

func (s *Source) path(number int) string {
	return filepath.Join(s.o.Dev, "loop"+strconv.Itoa(number))
}

// openDevice opens the device node. It creates a missing node, because a host
// without udev and devtmpfs has nodes for only the first few devices.
func (s *Source) openDevice(number, flags int) (*os.File, error) {
	path := s.path(number)
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		err = unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(loopMajor, uint32(number))))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("cannot make %s: %w", path, openError(err))
		}
		f, err = os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, openError(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != unix.Mkdev(loopMajor, uint32(number)) {
		_ = f.Close()
		return nil, fault.New(fault.NeedsOperator, "%s is not the loop device %d", path, number)
	}
	return f, nil
}

// openError adds the remedy to an error of the device cgroup, which denies loop
// devices if systemd did not find their number in /proc/devices when it started
// hostlerd.
func openError(err error) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	return fault.New(fault.NeedsOperator, "%w; if hostlerd started before the kernel had loop devices, restart it: systemctl restart hostlerd", err)
}

// bind attaches the file to a free device. Until keep is called, the device
// disappears when the returned descriptor is closed.
func (s *Source) bind(ctx context.Context, backing *os.File, r storage.Ref, readOnly bool) (*os.File, int, error) {
	control, err := os.OpenFile(filepath.Join(s.o.Dev, "loop-control"), os.O_RDWR, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot ask for a loop device: %w", openError(err))
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(backing.Fd())}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
	copy(config.Info.File_name[:], mark(r))
	flags := os.O_RDWR
	if readOnly {
		flags = os.O_RDONLY
		config.Info.Flags |= unix.LO_FLAGS_READ_ONLY
	}
	// The lock keeps goroutines of this process from racing for the same
	// number.
	s.binding.Lock()
	defer s.binding.Unlock()
	var last error
	for range tries {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, 0, fault.New(fault.Transient, "no loop device is free: %w", err)
		}
		if err := failpoint.Hit(failpoint.LoopNumberTaken); err != nil {
			return nil, 0, err
		}
		f, err := s.openDevice(number, flags)
		if err == nil {
			if err = unix.IoctlLoopConfigure(int(f.Fd()), &config); err == nil {
				return f, number, nil
			}
			_ = f.Close()
		}
		// Another process took the number, or the node does not exist yet.
		last = err
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINTR) {
			return nil, 0, fmt.Errorf("cannot set up %s: %w", s.path(number), err)
		}
		if err := pause.For(ctx, time.Millisecond+rand.N(20*time.Millisecond)); err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, fault.New(fault.Transient, "no loop device was free in %d tries: %w", tries, last)
}

// keep clears autoclear, so that the device outlives the descriptor. Autoclear
// is only for the set-up, during which a crash must leave no device behind.
func keep(f *os.File) error {
	status, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return err
	}
	status.Flags &^= unix.LO_FLAGS_AUTOCLEAR
	return unix.IoctlLoopSetStatus64(int(f.Fd()), status)
}

// release makes the device disappear with its last user, no matter which
// process set it up; see leaving().
func release(f *os.File, r storage.Ref) error {
	status, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return err
	}
	status.Flags |= unix.LO_FLAGS_AUTOCLEAR
	status.File_name = [len(status.File_name)]uint8{}
	copy(status.File_name[:], mark(r))
	return unix.IoctlLoopSetStatus64(int(f.Fd()), status)
}
