package images

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// keptFiles are files in the cache's directory that only save a later download.
// They are removed when they are older than maxAge, the oldest also when all
// together exceed maxSize, in bytes, or when an image needs the space.
type keptFiles struct {
	pattern string // see path.Match
	maxAge  time.Duration
	maxSize int64
}

type keptFile struct {
	path    string
	size    int64
	written time.Time
}

// list returns the files, oldest first.
func (c *Cache) list(k keptFiles) (all []keptFile) {
	names, _ := fs.Glob(os.DirFS(c.o.Dir), k.pattern)
	for _, name := range names {
		path := filepath.Join(c.o.Dir, name)
		if info, err := os.Lstat(path); err == nil {
			all = append(all, keptFile{path, info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b keptFile) int { return cmp.Or(a.written.Compare(b.written), strings.Compare(a.path, b.path)) })
	return all
}

// trim removes the files that exceed the limits.
func (c *Cache) trim(k keptFiles) {
	total := int64(0)
	for _, f := range slices.Backward(c.list(k)) { // newest first
		if total += f.size; total > k.maxSize || c.o.Clock().Sub(f.written) > k.maxAge {
			_ = os.Remove(f.path)
		}
	}
}

// dropOldest removes the oldest file. It returns false if there is none or if it
// cannot be removed.
func (c *Cache) dropOldest(k keptFiles) bool {
	all := c.list(k)
	if len(all) == 0 {
		return false
	}
	err := os.Remove(all[0].path)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}
