// Package records stores a small file per storage object, which contains the
// object's stamp. Each file is written atomically and durably.
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
	// limit bounds the size of a record, in bytes.
	limit = 64 << 10
)

// Folder holds records of type T. The zero value is not usable. Records are
// shared with the cache, so callers must not modify values that a record refers
// to.
type Folder[T any] struct {
	dir string
	// known caches records while their files are unchanged, because each
	// observation reads all records, and there may be thousands.
	known *sync.Map
}

// known is a cached record with the version of its file.
type known[T any] struct {
	file   version
	record T
}

// version distinguishes the contents of a file, because each write makes a new
// file.
type version struct {
	inode        uint64
	size         int64
	mtime, ctime unix.Timespec
}

func versionOf(s *unix.Stat_t) version { return version{s.Ino, s.Size, s.Mtim, s.Ctim} }

// In returns the folder of records at dir, an absolute path. The first Put
// makes the directory with mode 0700.
func In[T any](dir string) Folder[T] { return Folder[T]{dir: dir, known: &sync.Map{}} }

// path returns the path of a record's file.
func (f Folder[T]) path(id string) string { return filepath.Join(f.dir, id+suffix) }

// Get reads the record of id. found is false if there is none. The error for an
// invalid id is fault.Invalid, and for a malformed record fault.NeedsOperator.
func (f Folder[T]) Get(id string) (record T, found bool, err error) {
	if err := storage.ValidateID(id); err != nil {
		return record, false, err
	}
	path := f.path(id)
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
		return record, false, fault.New(fault.NeedsOperator, "%s is damaged: restore it, or remove it to give up the object that it describes", f.path(id))
	}
	f.known.Store(id, known[T]{versionOf(&there), record})
	return record, true, nil
}

// Put writes the record of id durably. Once Put returns nil, the record
// survives a power cut.
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
	return fault.Explain(atomicfile.Write(f.path(id), append(data, '\n'), 0o600), "cannot write the record of %s", id)
}

// Remove deletes the record of id durably. It succeeds if there is no record.
func (f Folder[T]) Remove(id string) error {
	if err := storage.ValidateID(id); err != nil {
		return err
	}
	defer f.known.Delete(id)
	return atomicfile.Remove(f.path(id))
}

// IDs lists the ids of all records, sorted. A missing directory has no records.
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

// MakeDir makes a directory and its parents, accessible to root alone.
func MakeDir(dir string) error {
	return fault.Explain(os.MkdirAll(dir, 0o700), "cannot make %s", dir)
}
