package tmpfs

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/mounts"
)

// Attach implements storage.FilesystemSource. Mounts at further paths are bind
// mounts of the first mount.
func (s *Source) Attach(ctx context.Context, filesystems []storage.FilesystemAttachParams) []storage.Result[storage.FilesystemAttachment] {
	return storage.Each(ctx, filesystems, storage.Explain("attach the filesystem", s.attach))
}

func (s *Source) attach(_ context.Context, p storage.FilesystemAttachParams) (storage.FilesystemAttachment, error) {
	var none storage.FilesystemAttachment
	s.mu.Lock()
	defer s.mu.Unlock()
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
	if p.ReadOnly {
		bits |= unix.MS_RDONLY
	}
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return none, err
	}
	if top := table.Top(p.Path); top != nil {
		switch {
		case top.FSType != "tmpfs" || top.Source != tag(p.Ref):
			return none, fault.New(fault.Conflict, "%s of type %s is mounted on %s", top.Source, top.FSType, p.Path)
		case mounts.ReadOnly(top) != p.ReadOnly:
			return none, fault.New(fault.Conflict, "it is mounted on %s with other settings (%s); detach it first", p.Path, top.Options)
		case !mounts.Restricted(top):
			if err := mounts.Restrict(p.Path, top.FSType); err != nil {
				return none, err
			}
		}
	} else if err := s.mount(p, rec, mountsOf(p.Ref, table), bits, data); err != nil {
		return none, err
	}
	a := storage.FilesystemAttachment{Path: p.Path, ReadOnly: p.ReadOnly}
	a.Size, a.Free, err = mounts.Usage(p.Path)
	return a, err
}

func (s *Source) mount(p storage.FilesystemAttachParams, rec record, others mounts.Table, bits uintptr, data string) error {
	if len(others) == 0 && (rec.Options == nil || !slices.Equal(rec.Options, p.Options)) {
		rec.Options = append([]string{}, p.Options...)
		if err := s.records.Put(p.ID, rec); err != nil {
			return err
		}
	}
	point, err := mounts.OpenPoint(p.Path)
	if err != nil {
		return err
	}
	defer point.Close()
	options := sizeOption(rec.Size) + ",mode=0755"
	if data != "" {
		options += "," + data
	}
	if err = point.Empty(); err == nil {
		if len(others) > 0 {
			err = point.Bind(others[0].Mountpoint, p.ReadOnly)
		} else {
			err = point.Mount(tag(p.Ref), "tmpfs", bits, options)
		}
	}
	if err != nil {
		point.GiveUp()
		return err
	}
	s.o.Log.Info("Mounted a filesystem in memory.", "filesystem", p.ID, "path", p.Path, "bytes", rec.Size)
	return failpoint.Hit(failpoint.TmpfsMounted)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	// The mounts carry the stamp, so they can be unmounted without a record.
	if _, err := s.owned(p.Ref); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return err
	}
	var failed error
	for _, m := range slices.Backward(mountsOf(p.Ref, table)) {
		if p.Path != "" && m.Mountpoint != p.Path {
			continue
		}
		if err := mounts.UnmountOnly(s.o.Proc, m, p.Force); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		mounts.Remove(m.Mountpoint)
		s.o.Log.Info("Unmounted a filesystem in memory.", "filesystem", p.ID, "path", m.Mountpoint)
	}
	return failed
}

// GrowFilesystems implements storage.FilesystemGrower. Unmounted filesystems
// grow too.
func (s *Source) GrowFilesystems(ctx context.Context, filesystems []storage.GrowParams) []storage.Result[storage.Filesystem] {
	return storage.Each(ctx, filesystems, storage.Described("grow the filesystem", s.grow, s.describe))
}

func (s *Source) grow(_ context.Context, p storage.GrowParams) error {
	if err := storage.ValidateSize(p.Size); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := s.owned(p.Ref)
	if err != nil {
		return err
	}
	size := s.round(p.Size)
	if size < rec.Size {
		return fault.New(fault.Invalid, "it has %s and cannot shrink to %s: its data may not fit", storage.Bytes(rec.Size), storage.Bytes(size))
	}
	if size > rec.Size {
		rec.Size = size
		if err := s.records.Put(p.ID, rec); err != nil {
			return err
		}
	}
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return err
	}
	at := mountsOf(p.Ref, table)
	if len(at) == 0 {
		return nil
	}
	m := at[0]
	if has, _, err := mounts.Usage(m.Mountpoint); err != nil || has >= size {
		return err
	}
	// All mounts share one superblock, so one remount suffices. Repeat the
	// mount's options, because a remount drops options that are not repeated.
	bits, _, err := mounts.Options(kernelOptions(m.Options))
	if err != nil {
		return err
	}
	return fault.Explain(unix.Mount("", m.Mountpoint, "", unix.MS_REMOUNT|bits, sizeOption(size)), "cannot resize %s", m.Mountpoint)
}

func kernelOptions(text string) []string { return strings.Split(text, ",") }
