// Package rootfs provides filesystems on the host's own filesystem. Each takes
// space as data is written, up to its declared size.
//
// An ext4 filesystem in a sparse file enforces the limit. A quota per directory
// would cost less, but hardly any host has it enabled; see
// docs/decisions/0007-rootfs-limit.md.
package rootfs

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"

	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/mounts"
)

// inner is the type of the filesystem in the sparse file.
const inner = "ext4"

// Options are the dependencies of a source.
type Options struct {
	// Dir is the absolute path of the directory of the base mounts.
	Dir string
	// Volumes provides sparse volumes on the host's filesystem, and Filesystems
	// the filesystems on these volumes. Both serve this source alone.
	Volumes     storage.VolumeSource
	Filesystems storage.FilesystemSource
	// Proc defaults to /proc.
	Proc string
	// Log may be nil.
	Log *slog.Logger
}

// Source is a storage.FilesystemSource on the host's filesystem. It is safe for
// concurrent use if its sources are.
type Source struct{ o Options }

var (
	_ storage.FilesystemSource    = (*Source)(nil)
	_ storage.FilesystemValidator = (*Source)(nil)
	_ storage.FilesystemGrower    = (*Source)(nil)
	_ storage.SpaceReporter       = (*Source)(nil)
	_ storage.Recorder            = (*Source)(nil)
	_ storage.Dependent           = (*Source)(nil)
)

// New returns a source; it does not access the host.
func New(o Options) *Source {
	o.Proc = cmp.Or(o.Proc, "/proc")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Source{o: o}
}

// base returns the path of the filesystem's base mount, which is bound to other
// paths.
func (s *Source) base(id string) string { return filepath.Join(s.o.Dir, id) }

// Missing implements storage.Dependent.
func (s *Source) Missing(string) string {
	if d, ok := s.o.Filesystems.(storage.Dependent); ok {
		return d.Missing(inner)
	}
	return ""
}

// ValidateFilesystem implements storage.FilesystemValidator.
func (s *Source) ValidateFilesystem(p storage.FilesystemParams) error {
	if p.Device != "" || p.Type != "" && p.Type != inner {
		return fault.New(fault.Invalid, "%s is a part of the host's filesystem and has neither a type nor a volume", p.ID)
	}
	if v, ok := s.o.Volumes.(storage.VolumeValidator); ok {
		return v.ValidateVolume(volume(p))
	}
	return p.Validate()
}

func volume(p storage.FilesystemParams) storage.VolumeParams {
	return storage.VolumeParams{Ref: p.Ref, Size: p.Size, Sparse: true, Record: p.Record}
}

// Space implements storage.SpaceReporter.
func (s *Source) Space(ctx context.Context) (storage.Space, error) {
	if r, ok := s.o.Volumes.(storage.SpaceReporter); ok {
		return r.Space(ctx)
	}
	return storage.Space{}, fault.New(fault.NotFound, "the volumes do not report their space")
}

// Create implements storage.FilesystemSource. It refuses sizes above the free
// space, although the space is taken only later.
func (s *Source) Create(ctx context.Context, filesystems []storage.FilesystemParams) []storage.Result[storage.Filesystem] {
	return storage.Each(ctx, filesystems, storage.Described("create the filesystem", s.create, s.describe))
}

func (s *Source) create(ctx context.Context, p storage.FilesystemParams) error {
	if err := s.ValidateFilesystem(p); err != nil {
		return err
	}
	volumes, err := s.o.Volumes.List(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(volumes, func(v storage.Volume) bool { return v.ID == p.ID }) {
		if space, err := s.Space(ctx); err == nil && space.Free < p.Size {
			return fault.Wrap(fault.Transient, &storage.SpaceError{Path: s.o.Dir, Need: p.Size, Free: space.Free})
		}
	}
	if r := s.o.Volumes.Create(ctx, []storage.VolumeParams{volume(p)}); r[0].Err != nil {
		return r[0].Err
	}
	device, err := s.device(ctx, p.Ref)
	if err != nil {
		return err
	}
	params := storage.FilesystemParams{Ref: p.Ref, Type: inner, Device: device, Anew: p.Anew, Progress: p.Progress}
	if r := s.o.Filesystems.Create(ctx, []storage.FilesystemParams{params}); r[0].Err != nil {
		return r[0].Err
	}
	// An unmounted filesystem needs no attached volume.
	if mounted, err := s.mountsOf(ctx, p.Ref); err != nil || len(mounted) > 0 {
		return err
	}
	return s.o.Volumes.Detach(ctx, []storage.DetachParams{{Ref: p.Ref}})[0]
}

// StoreRecords implements storage.Recorder. The volume stores the record.
func (s *Source) StoreRecords(ctx context.Context, objects []storage.RecordParams) []error {
	if r, ok := s.o.Volumes.(storage.Recorder); ok {
		return r.StoreRecords(ctx, objects)
	}
	return make([]error, len(objects))
}

// device attaches the volume, unless it is attached already, and returns the
// path of its block device.
func (s *Source) device(ctx context.Context, r storage.Ref) (string, error) {
	got := s.o.Volumes.Attach(ctx, []storage.VolumeAttachParams{{Ref: r}})
	return got[0].Value.Device, got[0].Err
}

// Destroy implements storage.FilesystemSource; it deletes the data.
func (s *Source) Destroy(ctx context.Context, filesystems []storage.Ref) []error {
	return storage.EachError(ctx, filesystems, storage.ExplainError("destroy the filesystem", s.destroy))
}

func (s *Source) destroy(ctx context.Context, r storage.Ref) error {
	if _, err := s.describe(ctx, r); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	mounted, err := s.mountsOf(ctx, r)
	if err != nil {
		return err
	}
	if len(mounted) > 0 {
		return storage.Busy(r.ID, "it is mounted on "+mounted[0].Mountpoint, nil)
	}
	// Destroy the volume last, because its stamp identifies the filesystem.
	if err := s.o.Volumes.Detach(ctx, []storage.DetachParams{{Ref: r}})[0]; err != nil {
		return err
	}
	if err := s.o.Filesystems.Destroy(ctx, []storage.Ref{r})[0]; err != nil {
		return err
	}
	return s.o.Volumes.Destroy(ctx, []storage.Ref{r})[0]
}

// GrowFilesystems implements storage.FilesystemGrower. An unmounted filesystem
// grows when it is next attached.
func (s *Source) GrowFilesystems(ctx context.Context, filesystems []storage.GrowParams) []storage.Result[storage.Filesystem] {
	return storage.Each(ctx, filesystems, storage.Described("grow the filesystem", s.grow, s.describe))
}

func (s *Source) grow(ctx context.Context, p storage.GrowParams) error {
	volumes, ok := s.o.Volumes.(storage.VolumeGrower)
	filesystems, also := s.o.Filesystems.(storage.FilesystemGrower)
	if !ok || !also {
		return fault.New(fault.Invalid, "it cannot grow")
	}
	if r := volumes.GrowVolumes(ctx, []storage.GrowParams{p}); r[0].Err != nil {
		return r[0].Err
	}
	err := filesystems.GrowFilesystems(ctx, []storage.GrowParams{p})[0].Err
	if fault.Is(err, fault.NotReady) {
		return nil
	}
	return err
}

// List implements storage.FilesystemSource.
func (s *Source) List(ctx context.Context) ([]storage.Filesystem, error) {
	volumes, err := s.o.Volumes.List(ctx)
	if err != nil {
		return nil, err
	}
	filesystems, err := s.o.Filesystems.List(ctx)
	if err != nil {
		return nil, err
	}
	var all []storage.Filesystem
	for _, v := range volumes {
		f := storage.Filesystem{Ref: v.Ref}
		if i := slices.IndexFunc(filesystems, func(f storage.Filesystem) bool { return f.Ref == v.Ref }); i >= 0 {
			f = filesystems[i]
		} else if v.Problem == "" {
			f.Problem, f.Unmade = "its creation was interrupted", true
		}
		f.Type, f.Size, f.Record = "rootfs", v.Size, v.Record
		if v.Problem != "" {
			f.Problem, f.Unlinked = v.Problem, v.Unlinked
		}
		base := s.base(v.ID)
		f.Attachments = slices.DeleteFunc(f.Attachments, func(a storage.FilesystemAttachment) bool {
			return a.Path == base && len(f.Attachments) > 1
		})
		attached := slices.ContainsFunc(f.Attachments, func(a storage.FilesystemAttachment) bool { return a.Path != base })
		d, has := v.Device()
		if has && d.Former && f.Problem == "" {
			f.Problem = v.Path + " was replaced, and it still has the former file: detach it from its machines and attach it again"
		}
		if has && !attached {
			f.Held = d.Device
		}
		all = append(all, f)
	}
	return all, nil
}

func (s *Source) describe(ctx context.Context, r storage.Ref) (storage.Filesystem, error) {
	if err := r.Validate(); err != nil {
		return storage.Filesystem{}, err
	}
	all, err := s.List(ctx)
	if err != nil {
		return storage.Filesystem{}, err
	}
	for _, f := range all {
		if f.ID == r.ID {
			return f, r.OwnedBy(f.Stamp)
		}
	}
	// List leaves out volumes of other namespaces, but such a volume takes the
	// name too.
	if d, ok := s.o.Volumes.(storage.VolumeDescriber); ok {
		if err := d.DescribeVolumes(ctx, []storage.Ref{r})[0].Err; err != nil {
			return storage.Filesystem{}, err
		}
	}
	return storage.Filesystem{}, fault.New(fault.NotFound, "there is no filesystem %s", r.ID)
}

// mountsOf returns all mounts of a filesystem, which are the base mount and the
// bound mounts.
func (s *Source) mountsOf(ctx context.Context, r storage.Ref) (mounts.Table, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	all, err := s.o.Filesystems.List(ctx)
	if err != nil {
		return nil, err
	}
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		if f.Ref == r {
			return table.Of(func(m *mountinfo.Info) bool {
				return slices.ContainsFunc(f.Attachments, func(a storage.FilesystemAttachment) bool {
					return a.Path == m.Mountpoint && a.Device == m.Source
				})
			}), nil
		}
	}
	return nil, nil
}
