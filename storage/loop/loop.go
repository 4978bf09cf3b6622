// Package loop provides volumes that are files of the host, attached as loop
// devices.
//
// A volume consists of two files: ID.img holds the data, ID.json the stamp. The
// data file gets its name only when it is complete. The device of a volume is
// not stored. It is found by the device number and inode of its backing file,
// or, if the file is missing, by the mark in the loop device.
package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/pause"
	"hostler/storage"
	"hostler/storage/records"
)

const (
	suffix     = ".img"
	tempSuffix = suffix + paths.TempSuffix
)

// Options are the settings of a source.
type Options struct {
	// Dir is the absolute path of the folder with the files. The source creates
	// it with mode 0700.
	Dir string
	// Namespace is the namespace of the listed volumes.
	Namespace string
	// Dev, Sys and Proc default to /dev, /sys and /proc.
	Dev, Sys, Proc string
	// Reserve returns the bytes to keep free for the host on a filesystem of
	// the given size; nil means 5 %, at most 1 GiB.
	Reserve func(total int64) int64
	// DetachTimeout is the time that Detach waits for short-lived users of the
	// device; 0 means 5 s.
	DetachTimeout time.Duration
	// Log may be nil.
	Log *slog.Logger
}

// Source is a storage.VolumeSource of loop devices. It is safe for concurrent
// use, also by several processes.
type Source struct {
	o       Options
	records records.Folder[record]
	binding sync.Mutex
	// extending is held from the look at the free space to the end of the
	// allocation, so that volumes at once leave the host its reserve together.
	extending sync.Mutex
}

var (
	_ storage.VolumeSource    = (*Source)(nil)
	_ storage.VolumeValidator = (*Source)(nil)
	_ storage.VolumeDescriber = (*Source)(nil)
	_ storage.VolumeGrower    = (*Source)(nil)
	_ storage.Recorder        = (*Source)(nil)
	_ storage.SpaceReporter   = (*Source)(nil)
)

// record is the content of ID.json.
type record struct {
	Stamp  storage.Stamp `json:"stamp"`
	Size   int64         `json:"size"`
	Sparse bool          `json:"sparse,omitempty"`
	// Record is the caller's text; see storage.Recorder.
	Record string `json:"record,omitempty"`
	// Destroying is set before the data is deleted. If data is missing while
	// Destroying is not set, another program removed the data.
	Destroying bool `json:"destroying,omitempty"`
}

// New returns a source; it does not access the host.
func New(o Options) *Source {
	orDefault := func(s *string, fallback string) {
		if *s == "" {
			*s = fallback
		}
	}
	orDefault(&o.Dev, "/dev")
	orDefault(&o.Sys, "/sys")
	orDefault(&o.Proc, "/proc")
	if o.Reserve == nil {
		o.Reserve = func(total int64) int64 { return min(total/20, 1<<30) }
	}
	o.DetachTimeout = cmp.Or(o.DetachTimeout, 5*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Source{o: o, records: records.In[record](o.Dir)}
}

// ValidateVolume implements storage.VolumeValidator.
func (s *Source) ValidateVolume(p storage.VolumeParams) error {
	if err := p.ValidateIn(s.o.Namespace); err != nil {
		return err
	}
	return storage.ValidateSize(p.Size)
}

func (s *Source) image(id string) string { return filepath.Join(s.o.Dir, id+suffix) }

// owned reads the record of a volume that must exist with r's stamp.
func (s *Source) owned(r storage.Ref) (record, error) {
	if err := r.ValidateIn(s.o.Namespace); err != nil {
		return record{}, err
	}
	rec, found, err := s.records.Get(r.ID)
	switch {
	case err != nil:
		return rec, err
	case found:
		return rec, r.OwnedBy(rec.Stamp)
	}
	if _, err := os.Lstat(s.image(r.ID)); err == nil {
		return rec, fault.New(fault.Conflict, "%s has no stamp", s.image(r.ID))
	}
	return rec, fault.New(fault.NotFound, "there is no volume %s in %s", r.ID, s.o.Dir)
}

// hold locks a volume against other processes until the returned file is
// closed. The lock has its own descriptor, because a loop device would keep a
// shared descriptor locked as long as the device exists.
func (s *Source) hold(ctx context.Context, id string) (*os.File, error) {
	f, err := s.open(id, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	if err := lock(ctx, f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// open opens the data of a volume.
func (s *Source) open(id string, flags int) (*os.File, error) {
	f, err := os.OpenFile(s.image(id), flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, lost(s.image(id))
	case errors.Is(err, unix.EROFS):
		return nil, fault.New(fault.NeedsOperator, "cannot open %s for writing: its filesystem is read-only", s.image(id))
	case err != nil:
		return nil, fmt.Errorf("cannot open the data of %s: %w", id, err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, fault.New(fault.NeedsOperator, "%s is not a regular file", s.image(id))
	}
	return f, nil
}

func lost(path string) error {
	return fault.New(fault.NeedsOperator, "%s was removed outside hostler; restore it, or remove the volume", path)
}

// lock locks an open file; the kernel releases the lock when the file is
// closed.
func lock(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("cannot lock %s: %w", f.Name(), err)
		}
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("cannot lock %s: %w", f.Name(), err)
		}
	}
}
