package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/mounts"
)

// Space implements storage.SpaceReporter.
func (s *Source) Space(context.Context) (storage.Space, error) {
	total, free, err := s.usage()
	if err != nil {
		return storage.Space{}, err
	}
	space := storage.Space{Path: s.o.Dir, Total: total, Free: free}
	ids, err := s.records.IDs()
	if err != nil {
		return space, err
	}
	for _, id := range ids {
		if size, allocated, err := fileSize(s.image(id)); err == nil {
			space.Promised += max(size-allocated, 0)
		}
	}
	return space, nil
}

// checkSpace refuses volumes that do not fit. For an allocated volume, size
// less the space that it has must be free now. A sparse volume must at least
// fit on the empty filesystem.
func (s *Source) checkSpace(size, has int64, sparse bool) error {
	total, free, err := s.usage()
	if err != nil {
		return err
	}
	reserved := s.o.Reserve(total)
	need, room := size-has, max(free-reserved, 0)
	if sparse {
		need, room = size, total-reserved
	}
	if need > room {
		return fault.Wrap(fault.Transient, &storage.SpaceError{Path: s.o.Dir, Need: need, Free: room})
	}
	return nil
}

// usage returns the total and the free space of Dir's filesystem, in bytes. If
// Dir does not exist, it takes the nearest existing parent.
func (s *Source) usage() (total, free int64, err error) {
	for dir := s.o.Dir; ; dir = filepath.Dir(dir) {
		total, free, err = mounts.Usage(dir)
		if err == nil || !errors.Is(err, os.ErrNotExist) || dir == "/" {
			return total, free, err
		}
	}
}

// fileSize returns the file's size and its allocated space, in bytes.
func fileSize(path string) (size, allocated int64, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, 0, fmt.Errorf("%s is not a regular file", path)
	}
	return info.Size(), blocks(info) * 512, nil // st_blocks counts units of 512 bytes
}
