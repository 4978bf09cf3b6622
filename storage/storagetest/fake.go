package storagetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"hostler/internal/fault"
	"hostler/storage"
)

// FakeHost is an in-memory host without devices, for the fake sources.
type FakeHost struct {
	mu          sync.Mutex
	volumes     map[string]*storage.Volume
	filesystems map[string]*storage.Filesystem
	devices     uint32
	room        int64
	holders     map[string][]storage.Holder
}

// NewFakeHost returns an empty host with room for that many bytes.
func NewFakeHost(room int64) *FakeHost {
	return &FakeHost{
		volumes: map[string]*storage.Volume{}, filesystems: map[string]*storage.Filesystem{},
		holders: map[string][]storage.Holder{}, room: room,
	}
}

// Hold keeps the object with that id busy until Hold is called without holders.
func (w *FakeHost) Hold(id string, holders ...storage.Holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holders[id] = holders
}

// String lists all objects, one line each.
func (w *FakeHost) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(w.volumes)) {
		v := w.volumes[id]
		fmt.Fprintf(&b, "volume %s of %s: %s", id, v.Stamp.Namespace, storage.Bytes(v.Size))
		for _, a := range v.Attachments {
			fmt.Fprintf(&b, " as %s", a.Device)
		}
		b.WriteByte('\n')
	}
	for _, id := range slices.Sorted(maps.Keys(w.filesystems)) {
		f := w.filesystems[id]
		fmt.Fprintf(&b, "filesystem %s of %s: %s, %s", id, f.Stamp.Namespace, f.Type, storage.Bytes(f.Size))
		for _, a := range f.Attachments {
			fmt.Fprintf(&b, " on %s", a.Path)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// check refuses a bad reference, and one with another namespace's stamp.
func (w *FakeHost) check(r storage.Ref, namespace string) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if r.Stamp.Namespace != namespace {
		return fault.New(fault.Invalid, "%s bears the namespace %q", r.ID, r.Stamp.Namespace)
	}
	return nil
}

// Volumes is a fake volume source.
type Volumes struct {
	w         *FakeHost
	namespace string
}

var (
	_ storage.VolumeSource = (*Volumes)(nil)
	_ storage.VolumeGrower = (*Volumes)(nil)
)

// NewVolumes returns a source of volumes in a world.
func NewVolumes(w *FakeHost, namespace string) *Volumes { return &Volumes{w: w, namespace: namespace} }

// lookup returns the volume, nil if there is none.
func (s *Volumes) lookup(r storage.Ref) (*storage.Volume, error) {
	if err := s.w.check(r, s.namespace); err != nil {
		return nil, err
	}
	v := s.w.volumes[r.ID]
	if v == nil {
		return nil, nil
	}
	return v, r.OwnedBy(v.Stamp)
}

// Create implements storage.VolumeSource.
func (s *Volumes) Create(ctx context.Context, volumes []storage.VolumeParams) []storage.Result[storage.Volume] {
	return storage.Each(ctx, volumes, func(_ context.Context, p storage.VolumeParams) (storage.Volume, error) {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		v, err := s.lookup(p.Ref)
		switch {
		case err != nil:
			return storage.Volume{}, err
		case v != nil:
			return copyVolume(v), nil
		}
		if err := storage.ValidateSize(p.Size); err != nil {
			return storage.Volume{}, err
		}
		size := storage.RoundSize(p.Size)
		if size > s.w.room {
			return storage.Volume{}, fault.Wrap(fault.Transient, &storage.SpaceError{Path: "/", Need: size, Free: s.w.room})
		}
		v = &storage.Volume{Ref: p.Ref, Size: size, Sparse: p.Sparse, Path: "/volumes/" + p.ID}
		if !p.Sparse {
			v.Allocated = size
		}
		s.w.volumes[p.ID] = v
		return copyVolume(v), nil
	})
}

// Attach implements storage.VolumeSource.
func (s *Volumes) Attach(ctx context.Context, volumes []storage.VolumeAttachParams) []storage.Result[storage.VolumeAttachment] {
	return storage.Each(ctx, volumes, func(_ context.Context, p storage.VolumeAttachParams) (storage.VolumeAttachment, error) {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		v, err := s.lookup(p.Ref)
		switch {
		case err != nil:
			return storage.VolumeAttachment{}, err
		case v == nil:
			return storage.VolumeAttachment{}, fault.New(fault.NotFound, "there is no volume %s", p.ID)
		case len(v.Attachments) == 0:
			s.w.devices++
			v.Attachments = []storage.VolumeAttachment{{
				Device: fmt.Sprintf("/dev/fake%d", s.w.devices), ReadOnly: p.ReadOnly,
			}}
		case v.Attachments[0].ReadOnly != p.ReadOnly:
			return storage.VolumeAttachment{}, fault.New(fault.Conflict, "%s is attached otherwise", p.ID)
		}
		return v.Attachments[0], nil
	})
}

// Detach implements storage.VolumeSource.
func (s *Volumes) Detach(ctx context.Context, volumes []storage.DetachParams) []error {
	return storage.EachError(ctx, volumes, func(_ context.Context, p storage.DetachParams) error {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		v, err := s.lookup(p.Ref)
		if err != nil || v == nil || len(v.Attachments) == 0 {
			return err
		}
		device := v.Attachments[0].Device
		holders := slices.Concat(s.w.holders[p.ID], s.w.holders[device])
		if len(holders) > 0 && !p.Force {
			return storage.Busy(device, "", holders)
		}
		for _, f := range s.w.filesystems {
			if slices.ContainsFunc(f.Attachments, func(a storage.FilesystemAttachment) bool { return a.Device == device }) && !p.Force {
				return storage.Busy(device, "it is mounted on "+f.Attachments[0].Path, nil)
			}
		}
		v.Attachments = nil
		return nil
	})
}

// Destroy implements storage.VolumeSource.
func (s *Volumes) Destroy(ctx context.Context, volumes []storage.Ref) []error {
	return storage.EachError(ctx, volumes, func(_ context.Context, r storage.Ref) error {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		v, err := s.lookup(r)
		if err != nil || v == nil {
			return err
		}
		if len(v.Attachments) > 0 {
			return storage.Busy(r.ID, "it is attached as "+v.Attachments[0].Device, nil)
		}
		delete(s.w.volumes, r.ID)
		return nil
	})
}

// GrowVolumes implements storage.VolumeGrower.
func (s *Volumes) GrowVolumes(ctx context.Context, volumes []storage.GrowParams) []storage.Result[storage.Volume] {
	return storage.Each(ctx, volumes, func(_ context.Context, p storage.GrowParams) (storage.Volume, error) {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		v, err := s.lookup(p.Ref)
		size := storage.RoundSize(p.Size)
		switch {
		case err != nil:
			return storage.Volume{}, err
		case v == nil:
			return storage.Volume{}, fault.New(fault.NotFound, "there is no volume %s", p.ID)
		case size < v.Size:
			return storage.Volume{}, fault.New(fault.Invalid, "%s cannot shrink", p.ID)
		}
		v.Size = size
		if !v.Sparse {
			v.Allocated = size
		}
		return copyVolume(v), nil
	})
}

// List implements storage.VolumeSource.
func (s *Volumes) List(context.Context) ([]storage.Volume, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	var all []storage.Volume
	for _, v := range s.w.volumes {
		if v.Stamp.Namespace == s.namespace {
			all = append(all, copyVolume(v))
		}
	}
	slices.SortFunc(all, func(a, b storage.Volume) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

func copyVolume(v *storage.Volume) storage.Volume {
	c := *v
	c.Attachments = slices.Clone(v.Attachments)
	return c
}
