package managedfs

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/mounts"
)

// Attach implements storage.FilesystemSource.
func (s *Source) Attach(ctx context.Context, filesystems []storage.FilesystemAttachParams) []storage.Result[storage.FilesystemAttachment] {
	return storage.Several(ctx, filesystems, storage.Explain("attach the filesystem", s.attach))
}

func (s *Source) attach(ctx context.Context, p storage.FilesystemAttachParams) (storage.FilesystemAttachment, error) {
	var none storage.FilesystemAttachment
	rec, err := s.owned(p.Ref)
	if err != nil {
		return none, err
	}
	if err := storage.ValidatePath(p.Path); err != nil {
		return none, err
	}
	bits, data, err := mounts.Options(p.Options)
	if err != nil {
		return none, err
	}
	defer s.working.lock(p.ID)()
	if rec, err = s.owned(p.Ref); err != nil {
		return none, err
	}
	switch {
	case !rec.Made:
		return none, fault.New(fault.NotReady, "it is not made yet")
	case p.Device == "":
		return none, fault.New(fault.NotReady, "its volume is not attached")
	}
	if p.ReadOnly {
		bits |= unix.MS_RDONLY
	}
	// Device numbers change, so the UUID on the device identifies the filesystem.
	if err := s.verify(ctx, rec, p.Device); err != nil {
		return none, err
	}
	mounted, err := s.mount(ctx, p, rec, bits, data)
	if err != nil {
		return none, err
	}
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return none, err
	}
	m := table.Top(p.Path)
	if m == nil {
		return none, fault.New(fault.Transient, "the mount on %s disappeared", p.Path)
	}
	if mounted && !mounts.ReadOnly(m) {
		if err := s.growAt(ctx, rec, m); err != nil {
			s.o.Log.Warn("Cannot grow a filesystem.", "filesystem", p.ID, "error", err)
		}
	}
	a := storage.FilesystemAttachment{Path: p.Path, Device: m.Source, ReadOnly: mounts.ReadOnly(m)}
	a.Size, a.Free, err = mounts.Usage(p.Path)
	return a, err
}

// mount mounts the device, unless it is mounted at the path already. It reports
// whether it mounted the device.
func (s *Source) mount(ctx context.Context, p storage.FilesystemAttachParams, rec record, bits uintptr, data string) (mounted bool, err error) {
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return false, err
	}
	if top := table.Top(p.Path); top != nil {
		ours := mountsOf(rec, mounts.Table{top}, newProbes())
		switch {
		case len(ours) == 0:
			return false, fault.New(fault.Conflict, "%s of type %s is mounted on %s", top.Source, top.FSType, p.Path)
		case mounts.ReadOnly(top) != p.ReadOnly:
			return false, fault.New(fault.Conflict, "it is mounted on %s with other settings (%s); detach it first", p.Path, top.Options)
		case !mounts.Restricted(top):
			return false, mounts.Restrict(p.Path, top.FSType)
		}
		return false, nil
	}
	if known := slices.Contains(rec.Paths, p.Path); !known || rec.Options == nil || !slices.Equal(rec.Options, p.Options) {
		if !known {
			rec.Paths = append(slices.Clip(rec.Paths), p.Path)
		}
		rec.Options = append([]string{}, p.Options...)
		if err := s.records.Put(p.ID, rec); err != nil {
			return false, err
		}
	}
	point, err := mounts.OpenPoint(p.Path)
	if err != nil {
		return false, err
	}
	defer point.Close()
	err = point.Empty()
	if err == nil && !p.ReadOnly {
		err = s.growBefore(ctx, rec, p.Device)
	}
	if err == nil {
		err = point.Mount(p.Device, rec.Type, bits, data)
	}
	if err != nil {
		point.GiveUp()
		return false, err
	}
	s.o.Log.Info("Mounted a filesystem.", "filesystem", p.ID, "path", p.Path, "device", p.Device)
	return true, failpoint.Hit(failpoint.MountedNotRecorded)
}

// Detach implements storage.FilesystemSource.
func (s *Source) Detach(ctx context.Context, filesystems []storage.DetachParams) []error {
	return storage.EachError(ctx, filesystems, storage.ExplainError("detach the filesystem", s.detach))
}

func (s *Source) detach(_ context.Context, p storage.DetachParams) error {
	if p.Path != "" {
		if err := storage.ValidatePath(p.Path); err != nil {
			return err
		}
	}
	if _, err := s.owned(p.Ref); err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	}
	defer s.working.lock(p.ID)()
	rec, err := s.owned(p.Ref)
	if err != nil {
		return err
	}
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return err
	}
	// Unmount stacked mounts in the reverse order of mounting.
	ours := mountsOf(rec, table, newProbes())
	var failed error
	for _, m := range slices.Backward(ours) {
		if p.Path != "" && m.Mountpoint != p.Path {
			continue
		}
		if err := mounts.UnmountOnly(s.o.Proc, m, p.Force); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		s.o.Log.Info("Unmounted a filesystem.", "filesystem", p.ID, "path", m.Mountpoint)
	}
	if failed != nil {
		return failed
	}
	var left []string
	for _, path := range rec.Paths {
		if p.Path != "" && path != p.Path {
			left = append(left, path)
			continue
		}
		mounts.Remove(path)
	}
	if len(left) == len(rec.Paths) {
		return nil
	}
	rec.Paths = left
	return s.records.Put(p.ID, rec)
}

// Destroy implements storage.FilesystemSource. It removes the record; the data
// stays on the volume.
func (s *Source) Destroy(ctx context.Context, filesystems []storage.Ref) []error {
	return storage.EachError(ctx, filesystems, storage.ExplainError("destroy the filesystem", s.destroy))
}

func (s *Source) destroy(_ context.Context, r storage.Ref) error {
	rec, err := s.owned(r)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer s.working.lock(r.ID)()
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return err
	}
	if at := mountsOf(rec, table, newProbes()); len(at) > 0 {
		return storage.Busy(r.ID, "it is mounted on "+at[0].Mountpoint, nil)
	}
	if err := s.records.Remove(r.ID); err != nil {
		return err
	}
	return s.forget()
}
