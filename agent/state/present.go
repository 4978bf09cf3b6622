package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// present maps the paths of the store's open files to their inodes.
type present map[string]os.FileInfo

// seePresent reads the inodes of the database, its write-ahead log and the
// shared-memory index. The last two are absent on a filesystem without shared
// memory, where SQLite uses no write-ahead log.
func (f files) seePresent() (present, error) {
	seen := present{}
	for _, path := range []string{f.db, f.db + "-wal", f.db + "-shm"} {
		info, err := os.Lstat(path)
		if path != f.db && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		seen[path] = info
	}
	return seen, nil
}

// check returns an error if a path has no file or has another file than before.
// The last commit then went into an unlinked file, which the next start does
// not read.
func (p present) check() error {
	for path, was := range p {
		if is, err := os.Lstat(path); err != nil || !os.SameFile(was, is) {
			return fmt.Errorf("%w: %s was removed or replaced while the agent ran", errDamaged, filepath.Base(path))
		}
	}
	return nil
}
