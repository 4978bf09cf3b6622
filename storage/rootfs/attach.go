package rootfs

import (
	"context"
	"errors"
	"slices"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/mounts"
)

// Attach implements storage.FilesystemSource.
func (s *Source) Attach(ctx context.Context, filesystems []storage.FilesystemAttachParams) []storage.Result[storage.FilesystemAttachment] {
	return storage.Each(ctx, filesystems, storage.Explain("attach the filesystem", s.attach))
}

func (s *Source) attach(ctx context.Context, p storage.FilesystemAttachParams) (storage.FilesystemAttachment, error) {
	var none storage.FilesystemAttachment
	if err := storage.ValidatePath(p.Path); err != nil {
		return none, err
	}
	if _, err := s.describe(ctx, p.Ref); err != nil {
		return none, err
	}
	// Make the base mount writable, even for a read-only mount at another path.
	device, err := s.device(ctx, p.Ref)
	if err != nil {
		return none, err
	}
	base := s.base(p.ID)
	first := storage.FilesystemAttachParams{Ref: p.Ref, Path: base, Device: device, Options: p.Options, ReadOnly: p.ReadOnly && p.Path == base}
	got := s.o.Filesystems.Attach(ctx, []storage.FilesystemAttachParams{first})
	if got[0].Err != nil || p.Path == base {
		return got[0].Value, got[0].Err
	}
	if err := s.bind(p, base); err != nil {
		return none, err
	}
	a := storage.FilesystemAttachment{Path: p.Path, Device: device, ReadOnly: p.ReadOnly}
	a.Size, a.Free, err = mounts.Usage(p.Path)
	return a, err
}

// bind mounts the filesystem at a path, unless the filesystem is already
// visible there, even if through several mounts.
func (s *Source) bind(p storage.FilesystemAttachParams, base string) error {
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return err
	}
	from := table.Top(base)
	if from == nil {
		return fault.New(fault.Transient, "the mount on %s disappeared", base)
	}
	if top := table.Top(p.Path); top != nil {
		switch {
		case top.Major != from.Major || top.Minor != from.Minor || top.Root != from.Root:
			return fault.New(fault.Conflict, "%s of type %s is mounted on %s", top.Source, top.FSType, p.Path)
		case mounts.ReadOnly(top) != p.ReadOnly:
			return fault.New(fault.Conflict, "it is mounted on %s with other settings (%s); detach it first", p.Path, top.Options)
		case !mounts.Restricted(top):
			return mounts.Restrict(p.Path, top.FSType)
		}
		return nil
	}
	point, err := mounts.OpenPoint(p.Path)
	if err != nil {
		return err
	}
	defer point.Close()
	if err = point.Empty(); err == nil {
		err = point.Bind(base, p.ReadOnly)
	}
	if err != nil {
		point.GiveUp()
		return err
	}
	s.o.Log.Info("Bound a filesystem.", "filesystem", p.ID, "path", p.Path)
	return failpoint.Hit(failpoint.RootfsBound)
}

// Detach implements storage.FilesystemSource. After the last path it also
// unmounts the base mount and detaches the volume.
func (s *Source) Detach(ctx context.Context, filesystems []storage.DetachParams) []error {
	return storage.EachError(ctx, filesystems, storage.ExplainError("detach the filesystem", s.detach))
}

func (s *Source) detach(ctx context.Context, p storage.DetachParams) error {
	if p.Path != "" {
		if err := storage.ValidatePath(p.Path); err != nil {
			return err
		}
	}
	if _, err := s.describe(ctx, p.Ref); err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	}
	mounted, err := s.mountsOf(ctx, p.Ref)
	if err != nil {
		return err
	}
	base, left := s.base(p.ID), 0
	var failed error
	for _, m := range slices.Backward(mounted) {
		switch {
		case m.Mountpoint == base:
		case p.Path != "" && p.Path != m.Mountpoint:
			left++
		default:
			if err := mounts.UnmountOnly(s.o.Proc, m, p.Force); err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			mounts.Remove(m.Mountpoint)
			s.o.Log.Info("Unbound a filesystem.", "filesystem", p.ID, "path", m.Mountpoint)
		}
	}
	if failed != nil || left > 0 {
		return failed
	}
	if err := s.o.Filesystems.Detach(ctx, []storage.DetachParams{{Ref: p.Ref, Force: p.Force}})[0]; err != nil {
		return err
	}
	return s.o.Volumes.Detach(ctx, []storage.DetachParams{{Ref: p.Ref, Force: p.Force}})[0]
}
