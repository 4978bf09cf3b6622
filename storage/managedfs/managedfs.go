// Package managedfs provides filesystems on volumes: ext4, xfs and btrfs.
//
// The UUID and the label of a filesystem are derived from its stamp alone. A
// device is formatted only if it is proven blank, if an earlier creation of the
// same filesystem on it was interrupted, or if the caller allowed the
// destruction of its data. A device is mounted only if it has the filesystem's
// UUID.
package managedfs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/moby/sys/mountinfo"

	"hostler/internal/fault"
	"hostler/internal/run"
	"hostler/storage"
	"hostler/storage/blockdevice"
	"hostler/storage/mounts"
	"hostler/storage/records"
)

// Options are the settings of a source.
type Options struct {
	// Dir is the absolute path of the folder with the records.
	Dir string
	// Namespace is the namespace of the listed filesystems.
	Namespace string
	// Runner runs the tools, e.g. mkfs.ext4.
	Runner run.Runner
	// Grower runs the tools that grow mounted filesystems, with the capabilities
	// of process 1. If it is nil, Runner runs these tools too.
	Grower run.Runner
	// Install installs a package with tools on the host. If it is nil, a missing
	// tool is an error. progress receives plain sentences.
	Install func(ctx context.Context, pkg string, progress func(string)) error
	// Host holds the directories for looking up block devices.
	Host blockdevice.Host
	// Proc defaults to /proc.
	Proc string
	// Log may be nil.
	Log *slog.Logger
}

// Source is a storage.FilesystemSource of filesystems on volumes. It is safe
// for concurrent use.
type Source struct {
	o       Options
	records records.Folder[record]
	wiped   records.Folder[wiped]
	working keyed
}

var (
	_ storage.FilesystemSource    = (*Source)(nil)
	_ storage.FilesystemValidator = (*Source)(nil)
	_ storage.FilesystemGrower    = (*Source)(nil)
	_ storage.Recorder            = (*Source)(nil)
	_ storage.Dependent           = (*Source)(nil)
)

// record is the stored state of a filesystem.
type record struct {
	Stamp storage.Stamp `json:"stamp"`
	Type  string        `json:"type"`
	UUID  string        `json:"uuid"`
	Label string        `json:"label"`
	// Device is the identity of the device of the filesystem.
	Device string `json:"device"`
	// Made is set when the filesystem is complete. Before, the filesystem was
	// never mounted, so creating it again loses no data.
	Made bool `json:"made"`
	// Paths are the filesystem's mount points, recorded before each mount.
	Paths []string `json:"paths,omitempty"`
	// Options are the filesystem's mount options, recorded before each mount.
	// They are nil if they are not known.
	Options []string `json:"options"`
	// Record is the caller's text; see storage.Recorder.
	Record string `json:"record,omitempty"`
}

// New returns a source; it does not access the host.
func New(o Options) *Source {
	o.Proc = cmp.Or(o.Proc, "/proc")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Source{o: o, records: records.In[record](o.Dir), wiped: records.In[wiped](filepath.Join(o.Dir, "wiped"))}
}

// space is the namespace of the UUIDs that Identity derives from stamps.
var space = uuid.MustParse("0a4b5bd2-38e7-5c1c-9f5e-6d8c1f2b7a90")

// Identity returns the UUID and the label of a stamp's filesystem, e.g. label
// h-1f0a3c5e7b.
func Identity(s storage.Stamp) (id, label string) {
	name := s.Namespace + "\x00" + s.UID
	sum := sha256.Sum256([]byte(name))
	// The label must be short, because xfs allows only 12 bytes.
	return uuid.NewSHA1(space, []byte(name)).String(), "h-" + hex.EncodeToString(sum[:5])
}

// ValidateFilesystem implements storage.FilesystemValidator.
func (s *Source) ValidateFilesystem(p storage.FilesystemParams) error {
	if err := p.ValidateIn(s.o.Namespace); err != nil {
		return err
	}
	if _, known := kinds[p.Type]; !known {
		return fault.New(fault.Invalid, "%q is not a type of filesystem; use ext4, xfs or btrfs", p.Type)
	}
	return nil
}

// owned reads the record of a filesystem that must exist with r's stamp.
func (s *Source) owned(r storage.Ref) (record, error) {
	if err := r.ValidateIn(s.o.Namespace); err != nil {
		return record{}, err
	}
	rec, found, err := s.records.Get(r.ID)
	switch {
	case err != nil:
		return rec, err
	case !found:
		return rec, fault.New(fault.NotFound, "there is no filesystem %s", r.ID)
	}
	return rec, r.OwnedBy(rec.Stamp)
}

// List implements storage.FilesystemSource.
func (s *Source) List(ctx context.Context) ([]storage.Filesystem, error) {
	if err := s.forget(); err != nil {
		return nil, err
	}
	ids, err := s.records.IDs()
	if err != nil {
		return nil, err
	}
	table, err := mounts.In(ctx, s.o.Proc)
	if err != nil {
		return nil, err
	}
	seen := newProbes()
	var all []storage.Filesystem
	for _, id := range ids {
		rec, found, err := s.records.Get(id)
		switch {
		case fault.Is(err, fault.NeedsOperator):
			all = append(all, storage.Filesystem{Ref: storage.Ref{ID: id, Stamp: storage.Stamp{Namespace: s.o.Namespace}}, Problem: err.Error()})
		case err != nil:
			return nil, err
		case found && rec.Stamp.Namespace == s.o.Namespace:
			all = append(all, s.filesystem(id, rec, table, seen))
		}
	}
	return all, nil
}

func (s *Source) describe(_ context.Context, r storage.Ref) (storage.Filesystem, error) {
	rec, err := s.owned(r)
	if err != nil {
		return storage.Filesystem{}, fmt.Errorf("cannot describe the filesystem %s: %w", r.ID, err)
	}
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return storage.Filesystem{}, err
	}
	return s.filesystem(r.ID, rec, table, newProbes()), nil
}

// StoreRecords implements storage.Recorder.
func (s *Source) StoreRecords(ctx context.Context, objects []storage.RecordParams) []error {
	return storage.EachError(ctx, objects, storage.ExplainError("record the declaration of the filesystem", s.storeRecord))
}

func (s *Source) storeRecord(_ context.Context, p storage.RecordParams) error {
	defer s.working.lock(p.ID)()
	rec, err := s.owned(p.Ref)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case err != nil || rec.Record == p.Record:
		return err
	}
	rec.Record = p.Record
	return s.records.Put(p.ID, rec)
}

func (s *Source) filesystem(id string, rec record, table mounts.Table, seen probes) storage.Filesystem {
	f := storage.Filesystem{Ref: storage.Ref{ID: id, Stamp: rec.Stamp}, Type: rec.Type, UUID: rec.UUID, Label: rec.Label, Record: rec.Record}
	if !rec.Made {
		f.Problem, f.Unmade = "its creation was interrupted", true
	}
	for _, m := range mountsOf(rec, table, seen) {
		a := storage.FilesystemAttachment{Path: m.Mountpoint, Device: m.Source, ReadOnly: mounts.ReadOnly(m), Unrestricted: !mounts.Restricted(m)}
		var err error
		if a.Size, a.Free, err = mounts.Usage(m.Mountpoint); err != nil {
			f.Problem = err.Error()
		}
		if mounts.Failed(m) {
			f.Problem = "the kernel made it read-only after an error of its device; after its repair, detach it from its machines and attach it again"
		}
		f.Attachments, f.Options = append(f.Attachments, a), rec.Options
		f.Size = a.Size
		f.Growable = growable(rec.Type, m)
	}
	return f
}

// mountsOf returns the mounts of a filesystem. These are the mounts of devices
// with the filesystem's UUID, and the mounts of unreadable devices at the
// recorded paths.
func mountsOf(rec record, table mounts.Table, seen probes) mounts.Table {
	return table.Of(func(m *mountinfo.Info) bool {
		if m.FSType != rec.Type || m.Source == "" || m.Source[0] != '/' {
			return false
		}
		bears, err := seen.bears(m.Source, rec.Type, rec.UUID)
		return bears || err != nil && slices.Contains(rec.Paths, m.Mountpoint)
	})
}

// probes caches the signatures of devices during one call.
type probes map[string]probed

type probed struct {
	found []blockdevice.Signature
	err   error
}

func newProbes() probes { return probes{} }

func (p probes) bears(device, kind, id string) (bool, error) {
	got, known := p[device]
	if !known {
		got.found, got.err = probe(device)
		p[device] = got
	}
	return slices.ContainsFunc(got.found, func(s blockdevice.Signature) bool {
		return s.Type == kind && s.UUID == id && !s.Unfinished
	}), got.err
}

func probe(device string) ([]blockdevice.Signature, error) {
	f, err := os.OpenFile(device, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotReady, "the device %s is missing", device)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the device: %w", err)
	}
	defer f.Close()
	size, err := f.Seek(0, 2)
	if err != nil {
		return nil, fmt.Errorf("cannot read the device: %w", err)
	}
	return blockdevice.Probe(f, size)
}

// keyed serialises the work on each filesystem.
type keyed struct{ locks sync.Map }

func (k *keyed) lock(id string) (unlock func()) {
	m, _ := k.locks.LoadOrStore(id, &sync.Mutex{})
	mutex, _ := m.(*sync.Mutex)
	mutex.Lock()
	return mutex.Unlock
}
