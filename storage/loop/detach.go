package loop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/atomicfile"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/pause"
	"hostler/storage"
	"hostler/storage/mounts"
)

// Detach implements storage.VolumeSource.
func (s *Source) Detach(ctx context.Context, volumes []storage.DetachParams) []error {
	return storage.EachError(ctx, volumes, storage.ExplainError("detach the volume", s.detach))
}

func (s *Source) detach(ctx context.Context, p storage.DetachParams) error {
	// A volume whose record was removed may still have devices with its mark.
	_, err := s.owned(p.Ref)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if held, err := s.hold(ctx, p.ID); err == nil {
		defer held.Close()
	}
	devices, err := s.of(p.Ref)
	if err != nil {
		return err
	}
	// Try all devices, and return the first failure.
	var failed error
	for _, d := range devices {
		if err := s.clear(ctx, d, p); err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}

// of returns the devices of a volume. These are devices whose backing file is
// the volume's, and devices with the volume's mark whose file was replaced or
// removed. It leaves out devices that were detached by force, which disappear
// with their last user.
func (s *Source) of(r storage.Ref) ([]device, error) {
	all, err := s.devices()
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(s.image(r.ID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot look at the data: %w", err)
	}
	// An unstamped file belongs to another program, and so does its device.
	if _, found, _ := s.records.Get(r.ID); !found {
		info = nil
	}
	var devices []device
	for _, d := range all {
		if d.belongs(r, info) {
			devices = append(devices, d)
		}
	}
	return devices, nil
}

// clear detaches the file from a device. While the device is open, the kernel
// postpones the detachment without an error; so clear looks for users first and
// checks the result afterwards.
func (s *Source) clear(ctx context.Context, d device, p storage.DetachParams) error {
	deadline := time.Now().Add(s.o.DetachTimeout)
	for {
		err := s.tryClear(d, p)
		var busy *storage.BusyError
		// Wait for short-lived users, such as udev or another goroutine of this
		// process that reads the device, because they close the device soon. Do not
		// wait for other processes and mounts.
		if !errors.As(err, &busy) || slices.ContainsFunc(busy.Holders, notOurs) || busy.Why != "" || time.Now().After(deadline) {
			return err
		}
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func notOurs(h storage.Holder) bool { return h.PID != os.Getpid() }

func (s *Source) tryClear(d device, p storage.DetachParams) error {
	path, number := s.path(d.number), unix.Mkdev(loopMajor, uint32(d.number))
	if !p.Force {
		if err := s.unused(path, number); err != nil {
			return err
		}
	}
	f, err := s.openDevice(d.number, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", path, err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = f.Close()
		}
	}()
	// udev takes a shared lock while it probes a device, and skips devices with
	// an exclusive lock.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil && !p.Force {
		return storage.Busy(path, "", nil)
	}
	// The number may belong to another file by now.
	now, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if now.Device != d.status.Device || now.Inode != d.status.Inode || now.File_name != d.status.File_name {
		return nil
	}
	if err := failpoint.Hit(failpoint.LoopDetaching); err != nil {
		return err
	}
	if p.Force {
		if err := release(f, p.Ref); err != nil && !errors.Is(err, unix.ENXIO) {
			return fmt.Errorf("cannot detach %s: %w", path, err)
		}
		s.o.Log.Info("Detached a device by force.", "device", path)
		return nil
	}
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("cannot detach %s: %w", path, err)
	}
	_ = f.Close()
	closed = true
	left, err := s.look(d.number)
	if err != nil || left.status.Device != d.status.Device || left.status.Inode != d.status.Inode {
		s.o.Log.Info("Detached a device.", "device", path)
		return nil
	}
	// Another process opened the device meanwhile. Cancel the postponed
	// detachment.
	if f, err := s.openDevice(d.number, os.O_RDONLY); err == nil {
		_ = keep(f)
		_ = f.Close()
	}
	return storage.Busy(path, "", mounts.Holders(s.o.Proc, mounts.Used{FS: number, Block: number, Device: path}))
}

// unused returns a BusyError if the device is mounted or open, or if a process
// holds a file of a filesystem on it. A lazily unmounted filesystem appears in
// no mount table and is still in use.
func (s *Source) unused(path string, number uint64) error {
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return err
	}
	if on := table.OfDevice(path, number); len(on) > 0 {
		return storage.Busy(path, "it is mounted on "+on[0].Mountpoint, nil)
	}
	if holders := mounts.Holders(s.o.Proc, mounts.Used{FS: number, Block: number, Device: path}); len(holders) > 0 {
		return storage.Busy(path, "", holders)
	}
	return s.notUnder(path)
}

// notUnder returns a BusyError if the host has made another device of the loop
// device, e.g. activated a volume group on it. Such a device is held by the
// kernel and by no process.
func (s *Source) notUnder(path string) error {
	above, err := os.ReadDir(filepath.Join(s.o.Sys, "block", filepath.Base(path), "holders"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot look for devices on %s: %w", path, err)
	}
	if len(above) == 0 {
		return nil
	}
	name := above[0].Name()
	if text, err := os.ReadFile(filepath.Join(s.o.Sys, "block", name, "dm/name")); err == nil {
		name = strings.TrimSpace(string(text))
	}
	return storage.Busy(path, "the host's device "+name+" is on it; stop that device, e.g. with `dmsetup remove` or `mdadm --stop`", nil)
}

// Destroy implements storage.VolumeSource.
func (s *Source) Destroy(ctx context.Context, volumes []storage.Ref) []error {
	return storage.EachError(ctx, volumes, storage.ExplainError("destroy the volume", s.destroy))
}

func (s *Source) destroy(ctx context.Context, r storage.Ref) error {
	rec, err := s.owned(r)
	if fault.Is(err, fault.NotFound) {
		return s.removeTemp(ctx, r.ID)
	}
	if err != nil {
		return err
	}
	if held, err := s.hold(ctx, r.ID); err == nil {
		defer held.Close()
	}
	devices, err := s.of(r)
	if err != nil {
		return err
	}
	if len(devices) > 0 {
		return storage.Busy(r.ID, "it is attached as "+s.path(devices[0].number), nil)
	}
	if !rec.Destroying {
		rec.Destroying = true
		if err := s.records.Put(r.ID, rec); err != nil {
			return explain(err, s.o.Dir)
		}
	}
	if err := failpoint.Hit(failpoint.LoopBackingDeleting); err != nil {
		return err
	}
	if err := atomicfile.Remove(s.image(r.ID)); err != nil {
		return explain(err, s.o.Dir)
	}
	if err := s.removeTemp(ctx, r.ID); err != nil {
		return err
	}
	if err := s.records.Remove(r.ID); err != nil {
		return explain(err, s.o.Dir)
	}
	s.o.Log.Info("Destroyed a volume.", "volume", r.ID)
	return nil
}

// removeTemp removes the file of an interrupted creation. It waits for a
// creation in progress.
func (s *Source) removeTemp(ctx context.Context, id string) error {
	f, err := os.OpenFile(s.tempPath(id), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot remove the file: %w", err)
	}
	defer f.Close()
	if err := lock(ctx, f); err != nil {
		return err
	}
	return atomicfile.Remove(f.Name())
}
