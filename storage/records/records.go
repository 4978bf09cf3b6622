// Package records keeps one small file per storage object: the stamp beside
// what a source makes. Each is written whole and durably.
package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/storage"
)

const (
	suffix = ".json"
	// limit bounds what is read of a record, in bytes.
	limit = 64 << 10
)

// Folder holds records of one type. The zero value is not usable. Records are
// shared with the cache: what a record refers to is not to be written to.
type Folder[T any] struct {
	dir string
	// known holds what was read, for as long as the file is the same: there
	// may be thousands, and all are read at every look.
	known *sync.Map
}

// known is a record and the file that it was read from.
type known[T any] struct {
	file   version
	record T
}

// version tells one content of a file from the next: records are written to a
// new file each time.
type version struct {
	inode        uint64
	size         int64
	mtime, ctime unix.Timespec
}

func versionOf(s *unix.Stat_t) version { return version{s.Ino, s.Size, s.Mtim, s.Ctim} }

// In returns the folder of records at dir, an absolute path. It is made, with
// mode 0700, by the first Put.
func In[T any](dir string) Folder[T] { return Folder[T]{dir: dir, known: &sync.Map{}} }

// Dir is where the records are.
func (f Folder[T]) Dir() string { return f.dir }

// Path is where the record of id is.
func (f Folder[T]) Path(id string) string { return filepath.Join(f.dir, id+suffix) }

// Get reads the record of id, which must be valid; false when there is none.
// A record that cannot be understood is fault.NeedsOperator.
func (f Folder[T]) Get(id string) (record T, found bool, err error) {
	if err := storage.ValidateID(id); err != nil {
		return record, false, err
	}
	path := f.Path(id)
	var there unix.Stat_t
	if before, read := f.known.Load(id); read && unix.Lstat(path, &there) == nil {
		if k, ok := before.(known[T]); ok && k.file == versionOf(&there) {
			return k.record, true, nil
		}
	}
	f.known.Delete(id)
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return record, false, nil
	}
	if err != nil {
		return record, false, fmt.Errorf("cannot read the record of %s: %w", id, err)
	}
	defer file.Close()
	if err := unix.Fstat(int(file.Fd()), &there); err != nil {
		return record, false, fmt.Errorf("cannot read the record of %s: %w", id, err)
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return record, false, fmt.Errorf("cannot read the record of %s: %w", id, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&record); err != nil || decoder.More() || len(data) > limit {
		return record, false, fault.New(fault.NeedsOperator, "%s is damaged: restore it, or remove it to give up what it stands for", f.Path(id))
	}
	f.known.Store(id, known[T]{versionOf(&there), record})
	return record, true, nil
}

// Put writes the record of id; when it returns nil the record survives a
// power cut.
func (f Folder[T]) Put(id string, record T) error {
	if err := storage.ValidateID(id); err != nil {
		return err
	}
	if err := MakeDir(f.dir); err != nil {
		return err
	}
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("cannot write the record of %s: %w", id, err)
	}
	defer f.known.Delete(id)
	if err := atomicfile.Write(f.Path(id), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("cannot write the record of %s: %w", id, err)
	}
	return nil
}

// Remove deletes the record of id durably; an absent one is success.
func (f Folder[T]) Remove(id string) error {
	if err := storage.ValidateID(id); err != nil {
		return err
	}
	defer f.known.Delete(id)
	return atomicfile.Remove(f.Path(id))
}

// IDs lists the ids of all records, sorted. A missing folder holds none.
func (f Folder[T]) IDs() ([]string, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot list records: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), suffix); ok && storage.ValidateID(id) == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// MakeDir makes a folder for root's eyes only, with those above it.
func MakeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make %s: %w", dir, err)
	}
	return nil
}
