package images

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The packages that a build downloaded are kept in debsDir, and the next build
// from the same archive downloads only the others. apt checks the signature of
// a package while it downloads the package, and trusts the files in its
// directory. So a kept file has its sha256 in its name, and a build gets only
// files that still have it. Packages of another archive stay apart, because
// another key may have signed them.

const (
	// maxDebAge is the age at which a kept package is removed. Most packages have
	// a newer version by then.
	maxDebAge = 30 * 24 * time.Hour
	// maxDebsSize is the maximum size of all kept packages together, in bytes. An
	// image's packages have about 100 MB.
	maxDebsSize = 2 << 30
)

// debsWork is the directory in a job's work directory through which a build
// gets and returns packages. The hooks setup00.sh and customize90.sh use it.
const debsWork = "debs"

// debsOf returns the directory for the packages of an archive.
func (c *Cache) debsOf(d distribution, address string) string {
	sum := sha256.Sum256([]byte(d.name + "\n" + address))
	return filepath.Join(c.o.Dir, debsDir, hex.EncodeToString(sum[:16]))
}

// offerDebs links the kept packages into the job's work directory, and removes
// those with a wrong digest.
func (c *Cache) offerDebs(ctx context.Context, kept, work string) error {
	to := filepath.Join(work, debsWork)
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	found, err := os.ReadDir(kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, f := range found {
		path, sum := filepath.Join(kept, f.Name()), strings.TrimPrefix(filepath.Ext(f.Name()), ".")
		if now, err := sumFile(ctx, path); err != nil || now != sum {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			_ = os.Remove(path) // another process may have removed it
			continue
		}
		// If two kept packages have the same name, apt takes the first if it has
		// the size in the archive's index.
		// Without a link, e.g. on a filesystem that has none, apt downloads the
		// package again.
		_ = os.Link(path, filepath.Join(to, strings.TrimSuffix(f.Name(), "."+sum)))
	}
	return nil
}

// keepDebs keeps the packages that a build returned. They are not synced: the
// digest shows a file that a power cut left incomplete. It returns how many
// packages are new.
func (c *Cache) keepDebs(ctx context.Context, kept, work string) (fresh int, err error) {
	defer c.dropDebs()
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return 0, err
	}
	found, err := os.ReadDir(filepath.Join(work, debsWork))
	if err != nil {
		return 0, err
	}
	now := c.o.Clock()
	for _, f := range found {
		path := filepath.Join(work, debsWork, f.Name())
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return fresh, err
		}
		if st.Nlink > 1 || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue // linked by offerDebs
		}
		sum, err := sumFile(ctx, path)
		if err != nil {
			return fresh, err
		}
		// apt gives a file the time at which the archive changed it.
		if err := errors.Join(os.Chmod(path, 0o600), os.Chtimes(path, now, now), os.Rename(path, filepath.Join(kept, f.Name()+"."+sum))); err != nil {
			return fresh, err
		}
		fresh++
	}
	return fresh, nil
}

// dropDebs removes packages that are older than maxDebAge, and the oldest
// packages if all together exceed maxDebsSize.
func (c *Cache) dropDebs() {
	total := int64(0)
	for _, d := range slices.Backward(c.debs()) { // newest first
		if total += d.size; total > maxDebsSize || c.o.Clock().Sub(d.written) > maxDebAge {
			_ = os.Remove(d.path)
		}
	}
}

// dropOldestDeb removes the oldest package. It returns false if there is none
// or if it cannot be removed.
func (c *Cache) dropOldestDeb() bool {
	all := c.debs()
	if len(all) == 0 {
		return false
	}
	err := os.Remove(all[0].path)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

type keptDeb struct {
	path    string
	size    int64
	written time.Time
}

// debs returns the kept packages of all archives, oldest first.
func (c *Cache) debs() (all []keptDeb) {
	paths, _ := filepath.Glob(filepath.Join(c.o.Dir, debsDir, "*", "*"))
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil {
			all = append(all, keptDeb{path, info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b keptDeb) int { return cmp.Or(a.written.Compare(b.written), strings.Compare(a.path, b.path)) })
	return all
}
