// Package tmpfs provides filesystems in memory. The data is lost with the last
// mount and when the host stops; the declaration stays and is mounted again.
package tmpfs

import (
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
	// Dir holds the records; absolute.
	Dir string
	// Namespace is the namespace of the listed filesystems.
	Namespace string
	// Proc defaults to /proc.
	Proc string
	// PageSize in bytes; 0: the machine's.
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
	// Options are its mount options, written before each mount; nil if they are
	// not known.
	Options []string `json:"options"`
	// Record is the caller's text; see storage.Recorder.
	Record string `json:"record,omitempty"`
}

// New returns a source; it does not access the host.
func New(o Options) *Source {
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.PageSize == 0 {
		o.PageSize = os.Getpagesize()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Source{o: o, records: records.In[record](o.Dir)}
}

// tag is the source name of a stamp's mounts, e.g. hostler:default:UID:scratch.
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
	if err := s.validate(p.Ref); err != nil {
		return err
	}
	if p.Device != "" || p.Type != "" && p.Type != "tmpfs" {
		return fault.New(fault.Invalid, "%s is in memory and has neither a type nor a volume", p.ID)
	}
	return storage.ValidateSize(p.Size)
}

func (s *Source) validate(r storage.Ref) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if r.Stamp.Namespace != s.o.Namespace {
		return fault.New(fault.Invalid, "%s has the namespace %q, not %q", r.ID, r.Stamp.Namespace, s.o.Namespace)
	}
	return nil
}

func (s *Source) owned(r storage.Ref) (record, error) {
	if err := s.validate(r); err != nil {
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
	return storage.Each(ctx, filesystems, func(_ context.Context, p storage.FilesystemParams) (storage.Filesystem, error) {
		if err := s.create(p); err != nil {
			return storage.Filesystem{}, fmt.Errorf("cannot create the filesystem %s: %w", p.ID, err)
		}
		return s.describe(p.Ref)
	})
}

func (s *Source) create(p storage.FilesystemParams) error {
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
	return storage.EachError(ctx, objects, func(_ context.Context, p storage.RecordParams) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		rec, err := s.owned(p.Ref)
		switch {
		case fault.Is(err, fault.NotFound):
			return nil
		case err == nil && rec.Record != p.Record:
			rec.Record = p.Record
			err = s.records.Put(p.ID, rec)
		}
		if err != nil {
			return fmt.Errorf("cannot record the declaration of the filesystem %s: %w", p.ID, err)
		}
		return nil
	})
}

// Destroy implements storage.FilesystemSource.
func (s *Source) Destroy(ctx context.Context, filesystems []storage.Ref) []error {
	return storage.EachError(ctx, filesystems, func(_ context.Context, r storage.Ref) error {
		if err := s.destroy(r); err != nil {
			return fmt.Errorf("cannot destroy the filesystem %s: %w", r.ID, err)
		}
		return nil
	})
}

func (s *Source) destroy(r storage.Ref) error {
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
	// The map avoids a search of all mounts per record; there may be thousands
	// of both.
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

func (s *Source) describe(r storage.Ref) (storage.Filesystem, error) {
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
		f.Attachments, f.Free, f.Options = append(f.Attachments, a), a.Free, rec.Options
		// The record grows before the mount.
		f.Growable = max(rec.Size-a.Size, 0)
	}
	return f
}

func sizeOption(size int64) string { return "size=" + strconv.FormatInt(size, 10) }
