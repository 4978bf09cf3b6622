package state

import (
	"fmt"
	"os"
	"path/filepath"
)

// present are the files that the store writes, by their paths.
type present map[string]os.FileInfo

// seePresent looks which files stand under the paths of the open store: the
// database, its log and what its connections share.
func (f files) seePresent() (present, error) {
	seen := present{}
	for _, path := range []string{f.db, f.db + "-wal", f.db + "-shm"} {
		info, err := os.Lstat(path)
		if err != nil {
			return nil, err
		}
		seen[path] = info
	}
	return seen, nil
}

// check fails when another file, or none, stands under one of the paths: what
// was just written is then in a file that the next opening does not read.
func (p present) check() error {
	for path, was := range p {
		if is, err := os.Lstat(path); err != nil || !os.SameFile(was, is) {
			return fmt.Errorf("%w: %s was removed or replaced while the agent ran", errDamaged, filepath.Base(path))
		}
	}
	return nil
}
