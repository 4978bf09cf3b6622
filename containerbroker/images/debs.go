package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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

// keptDebs are the packages of all archives. Most packages have a newer version
// after a month. An image's packages have about 100 MB.
var keptDebs = keptFiles{pattern: debsDir + "/*/*", maxAge: 30 * 24 * time.Hour, maxSize: 2 << 30}

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
	defer c.trim(keptDebs)
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
