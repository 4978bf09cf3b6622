// Package tmpfs provides filesystems in memory. The data is lost with the last
// mount and when the host stops. The filesystem stays declared and is mounted
// again, empty.
package tmpfs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"

	"github.com/moby/sys/mountinfo"

	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/mounts"
	"hostler/storage/records"
)

// Options are the settings of a source.
type Options struct {
	// Dir is the absolute path of the folder with the records.
	Dir string
	// Namespace is the namespace of the listed filesystems.
	Namespace string
	// Proc defaults to /proc.
	Proc string
	// PageSize is in bytes; 0 means the page size of the host.
	PageSize int
	// Log may be nil.
	Log *slog.Logger
}

// Source is a storage.FilesystemSource of memory. It is safe for concurrent
// use.
type Source struct {
	o       Options
	records records.Folder[record]
	mu      sync.Mutex
}

var (
	_ storage.FilesystemSource    = (*Source)(nil)
	_ storage.FilesystemValidator = (*Source)(nil)
	_ storage.FilesystemGrower    = (*Source)(nil)
	_ storage.Recorder            = (*Source)(nil)
)

type record struct {
	Stamp storage.Stamp `json:"stamp"`
	Size  int64         `json:"size"`
	// Options are the filesystem's mount options, recorded before the first
	// mount. They are nil if they are not known.
	Options []string `json:"options"`
	// Record is the caller's text; see storage.Recorder.
	Record string `json:"record,omitempty"`
}

// New returns a source; it does not access the host.
func New(o Options) *Source {
	o.Proc = cmp.Or(o.Proc, "/proc")
	o.PageSize = cmp.Or(o.PageSize, os.Getpagesize())
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Source{o: o, records: records.In[record](o.Dir)}
}

// tag returns the source name of the filesystem's mounts, e.g.
// hostler:default:UID:scratch.
func tag(r storage.Ref) string {
	return "hostler:" + r.Stamp.Namespace + ":" + r.Stamp.UID + ":" + r.ID
}

func mountsOf(r storage.Ref, table mounts.Table) mounts.Table {
	tag := tag(r)
	return table.Of(func(m *mountinfo.Info) bool { return m.FSType == "tmpfs" && m.Source == tag })
}

// round rounds a size up to whole pages, as the kernel does.
func (s *Source) round(size int64) int64 {
	page := int64(s.o.PageSize)
	return (size + page - 1) / page * page
}

// ValidateFilesystem implements storage.FilesystemValidator.
func (s *Source) ValidateFilesystem(p storage.FilesystemParams) error {
	if err := p.ValidateIn(s.o.Namespace); err != nil {
		return err
	}
	if p.Device != "" || p.Type != "" && p.Type != "tmpfs" {
		return fault.New(fault.Invalid, "%s is in memory and has neither a type nor a volume", p.ID)
	}
	return storage.ValidateSize(p.Size)
}

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

// Create implements storage.FilesystemSource. It takes no memory yet.
func (s *Source) Create(ctx context.Context, filesystems []storage.FilesystemParams) []storage.Result[storage.Filesystem] {
	return storage.Each(ctx, filesystems, storage.Described("create the filesystem", s.create, s.describe))
}

func (s *Source) create(_ context.Context, p storage.FilesystemParams) error {
	if err := s.ValidateFilesystem(p); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.owned(p.Ref)
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	return s.records.Put(p.ID, record{Stamp: p.Stamp, Size: s.round(p.Size), Record: p.Record})
}

// StoreRecords implements storage.Recorder.
func (s *Source) StoreRecords(ctx context.Context, objects []storage.RecordParams) []error {
	return storage.EachError(ctx, objects, storage.ExplainError("record the declaration of the filesystem", s.storeRecord))
}

func (s *Source) storeRecord(_ context.Context, p storage.RecordParams) error {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// Destroy implements storage.FilesystemSource.
func (s *Source) Destroy(ctx context.Context, filesystems []storage.Ref) []error {
	return storage.EachError(ctx, filesystems, storage.ExplainError("destroy the filesystem", s.destroy))
}

func (s *Source) destroy(_ context.Context, r storage.Ref) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.owned(r); err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	}
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return err
	}
	if at := mountsOf(r, table); len(at) > 0 {
		return storage.Busy(r.ID, "it is mounted on "+at[0].Mountpoint, nil)
	}
	return s.records.Remove(r.ID)
}

// List implements storage.FilesystemSource.
func (s *Source) List(ctx context.Context) ([]storage.Filesystem, error) {
	ids, err := s.records.IDs()
	if err != nil {
		return nil, err
	}
	table, err := mounts.In(ctx, s.o.Proc)
	if err != nil {
		return nil, err
	}
	// The map avoids a search of all mounts per record; there may be thousands of
	// records and of mounts.
	tagged := map[string]mounts.Table{}
	for _, m := range table {
		if m.FSType == "tmpfs" {
			tagged[m.Source] = append(tagged[m.Source], m)
		}
	}
	var all []storage.Filesystem
	for _, id := range ids {
		rec, found, err := s.records.Get(id)
		switch {
		case fault.Is(err, fault.NeedsOperator):
			all = append(all, storage.Filesystem{Ref: storage.Ref{ID: id, Stamp: storage.Stamp{Namespace: s.o.Namespace}}, Problem: err.Error()})
		case err != nil:
			return nil, err
		case found && rec.Stamp.Namespace == s.o.Namespace:
			r := storage.Ref{ID: id, Stamp: rec.Stamp}
			all = append(all, filesystem(r, rec, tagged[tag(r)]))
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
	return filesystem(r, rec, mountsOf(r, table)), nil
}

func filesystem(r storage.Ref, rec record, mounted mounts.Table) storage.Filesystem {
	f := storage.Filesystem{Ref: r, Type: "tmpfs", Size: rec.Size, Record: rec.Record}
	for _, m := range mounted {
		a := storage.FilesystemAttachment{Path: m.Mountpoint, ReadOnly: mounts.ReadOnly(m), Unrestricted: !mounts.Restricted(m)}
		var err error
		if a.Size, a.Free, err = mounts.Usage(m.Mountpoint); err != nil {
			f.Problem = err.Error()
		}
		f.Attachments, f.Options = append(f.Attachments, a), rec.Options
		// If growing is interrupted, the record has the new size and the mount the
		// old size.
		f.Growable = max(rec.Size-a.Size, 0)
	}
	return f
}

func sizeOption(size int64) string { return "size=" + strconv.FormatInt(size, 10) }
