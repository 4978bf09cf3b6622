package storagetest

import (
	"cmp"
	"context"
	"slices"

	"hostler/internal/fault"
	"hostler/storage"
)

// Filesystems is a fake filesystem source. If onVolumes is set, its filesystems
// need a device of the world.
type Filesystems struct {
	w         *FakeHost
	namespace string
	onVolumes bool
}

var (
	_ storage.FilesystemSource = (*Filesystems)(nil)
	_ storage.FilesystemGrower = (*Filesystems)(nil)
)

// NewFilesystems returns a source of filesystems in a world, on volumes or
// without devices.
func NewFilesystems(w *FakeHost, namespace string, onVolumes bool) *Filesystems {
	return &Filesystems{w: w, namespace: namespace, onVolumes: onVolumes}
}

func (s *Filesystems) lookup(r storage.Ref) (*storage.Filesystem, error) {
	if err := s.w.check(r, s.namespace); err != nil {
		return nil, err
	}
	f := s.w.filesystems[r.ID]
	if f == nil {
		return nil, nil
	}
	return f, r.OwnedBy(f.Stamp)
}

// device returns the volume that is attached as device, or an error.
func (s *Filesystems) device(device string) (*storage.Volume, error) {
	if !s.onVolumes {
		return nil, nil
	}
	for _, v := range s.w.volumes {
		if len(v.Attachments) > 0 && v.Attachments[0].Device == device {
			return v, nil
		}
	}
	return nil, fault.New(fault.NotReady, "the device %q is missing", device)
}

// Create implements storage.FilesystemSource.
func (s *Filesystems) Create(ctx context.Context, filesystems []storage.FilesystemParams) []storage.Result[storage.Filesystem] {
	return storage.Each(ctx, filesystems, func(_ context.Context, p storage.FilesystemParams) (storage.Filesystem, error) {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		f, err := s.lookup(p.Ref)
		if err != nil {
			return storage.Filesystem{}, err
		}
		on, err := s.device(p.Device)
		switch {
		case err != nil:
			return storage.Filesystem{}, err
		case f != nil:
			return copyFilesystem(f), nil
		}
		f = &storage.Filesystem{Ref: p.Ref, Type: p.Type, Size: storage.RoundSize(p.Size)}
		if on != nil {
			f.Size = on.Size
		}
		s.w.filesystems[p.ID] = f
		return copyFilesystem(f), nil
	})
}

// Attach implements storage.FilesystemSource.
func (s *Filesystems) Attach(ctx context.Context, filesystems []storage.FilesystemAttachParams) []storage.Result[storage.FilesystemAttachment] {
	return storage.Each(ctx, filesystems, func(_ context.Context, p storage.FilesystemAttachParams) (storage.FilesystemAttachment, error) {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		var none storage.FilesystemAttachment
		f, err := s.lookup(p.Ref)
		switch {
		case err != nil:
			return none, err
		case f == nil:
			return none, fault.New(fault.NotFound, "there is no filesystem %s", p.ID)
		}
		if err := storage.ValidatePath(p.Path); err != nil {
			return none, err
		}
		if _, err := s.device(p.Device); err != nil {
			return none, err
		}
		for _, a := range f.Attachments {
			if a.Path == p.Path && a.ReadOnly != p.ReadOnly {
				return none, fault.New(fault.Conflict, "%s is mounted on %s otherwise", p.ID, p.Path)
			}
			if a.Path == p.Path {
				return a, nil
			}
		}
		a := storage.FilesystemAttachment{Path: p.Path, Device: p.Device, ReadOnly: p.ReadOnly, Size: f.Size, Free: f.Size}
		f.Attachments = append(f.Attachments, a)
		return a, nil
	})
}

// Detach implements storage.FilesystemSource.
func (s *Filesystems) Detach(ctx context.Context, filesystems []storage.DetachParams) []error {
	return storage.EachError(ctx, filesystems, func(_ context.Context, p storage.DetachParams) error {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		f, err := s.lookup(p.Ref)
		if err != nil || f == nil {
			return err
		}
		gone := func(a storage.FilesystemAttachment) bool { return p.Path == "" || a.Path == p.Path }
		if i := slices.IndexFunc(f.Attachments, gone); i >= 0 && !p.Force {
			path := f.Attachments[i].Path
			if holders := slices.Concat(s.w.holders[p.ID], s.w.holders[path]); len(holders) > 0 {
				return storage.Busy(path, "", holders)
			}
		}
		f.Attachments = slices.DeleteFunc(f.Attachments, gone)
		return nil
	})
}

// Destroy implements storage.FilesystemSource.
func (s *Filesystems) Destroy(ctx context.Context, filesystems []storage.Ref) []error {
	return storage.EachError(ctx, filesystems, func(_ context.Context, r storage.Ref) error {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		f, err := s.lookup(r)
		if err != nil || f == nil {
			return err
		}
		if len(f.Attachments) > 0 {
			return storage.Busy(r.ID, "it is mounted on "+f.Attachments[0].Path, nil)
		}
		delete(s.w.filesystems, r.ID)
		return nil
	})
}

// GrowFilesystems implements storage.FilesystemGrower.
func (s *Filesystems) GrowFilesystems(ctx context.Context, filesystems []storage.GrowParams) []storage.Result[storage.Filesystem] {
	return storage.Each(ctx, filesystems, func(_ context.Context, p storage.GrowParams) (storage.Filesystem, error) {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		f, err := s.lookup(p.Ref)
		switch {
		case err != nil:
			return storage.Filesystem{}, err
		case f == nil:
			return storage.Filesystem{}, fault.New(fault.NotFound, "there is no filesystem %s", p.ID)
		}
		f.Size = max(f.Size, storage.RoundSize(p.Size))
		for i := range f.Attachments {
			f.Attachments[i].Size, f.Attachments[i].Free = f.Size, f.Size
		}
		return copyFilesystem(f), nil
	})
}

// List implements storage.FilesystemSource.
func (s *Filesystems) List(context.Context) ([]storage.Filesystem, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	var all []storage.Filesystem
	for _, f := range s.w.filesystems {
		if f.Stamp.Namespace == s.namespace {
			c := copyFilesystem(f)
			if on, err := s.attachedTo(f); err == nil && on != nil && len(f.Attachments) > 0 {
				c.Growable = max(on.Size-f.Size, 0)
			}
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b storage.Filesystem) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

func (s *Filesystems) attachedTo(f *storage.Filesystem) (*storage.Volume, error) {
	if len(f.Attachments) == 0 {
		return nil, nil
	}
	return s.device(f.Attachments[0].Device)
}

func copyFilesystem(f *storage.Filesystem) storage.Filesystem {
	c := *f
	c.Attachments = slices.Clone(f.Attachments)
	return c
}
