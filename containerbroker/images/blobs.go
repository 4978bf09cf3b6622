package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// proofs records which files this process has hashed and found correct. A
// recorded file is trusted while its size, modification time and inode are
// unchanged.
type proofs struct {
	mu    sync.Mutex
	known map[string]proof
}

type proof struct {
	size  int64
	mtime time.Time
	inode uint64
}

func (p *proofs) add(path string) {
	if seen, err := look(path); err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.known == nil {
			p.known = map[string]proof{}
		}
		p.known[path] = seen
	}
}

// prove returns an error if the file at path does not have the size and sha256
// of b.
func (p *proofs) prove(ctx context.Context, path string, b blob) error {
	seen, err := look(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("its file is missing")
		}
		return err
	}
	if seen.size != b.Size {
		return fmt.Errorf("its file has %d bytes instead of %d", seen.size, b.Size)
	}
	p.mu.Lock()
	known := p.known[path] == seen
	p.mu.Unlock()
	if known {
		return nil
	}
	sum, err := sumFile(ctx, path)
	if err != nil {
		return err
	}
	if sum != b.SHA256 {
		return fmt.Errorf("its file has sha256 %s instead of %s", sum, b.SHA256)
	}
	p.add(path)
	return nil
}

func look(path string) (proof, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return proof{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return proof{}, errors.New("its file is not a regular file")
	}
	return proof{size: st.Size, mtime: time.Unix(st.Mtim.Unix()), inode: st.Ino}, nil
}

func sumFile(ctx context.Context, path string) (string, error) {
	f, err := openRegular(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, &ctxReader{ctx, f}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// ctxReader stops reading when the context ends.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// replacedAge is the time for which a file stays after the index does not name it
// anymore, because a driver may still be about to read it.
const replacedAge = time.Hour

// keep moves verified files into the cache and adds e to the index. The lock of
// the blobs prevents a concurrent sweep() from deleting a file between the two
// steps. It also removes the files of images that were replaced earlier.
func (c *Cache) keep(e entry, paths []string) (Artifact, error) {
	unlock, err := c.lockBlobs()
	if err != nil {
		return Artifact{}, err
	}
	defer unlock()
	for i, path := range paths {
		target := c.blobPath(e.Files[i].SHA256)
		if err := os.Chmod(path, 0o600); err != nil {
			return Artifact{}, err
		}
		if err := syncFile(path); err != nil {
			return Artifact{}, err
		}
		if err := os.Rename(path, target); err != nil {
			return Artifact{}, err
		}
		c.proofs.add(target)
	}
	if err := syncFile(filepath.Join(c.o.Dir, blobsDir)); err != nil {
		return Artifact{}, err
	}
	if err := c.replaceEntry(e); err != nil {
		return Artifact{}, err
	}
	if err := c.sweepLocked(replacedAge); err != nil {
		c.log.Warn("files of replaced images cannot be removed now and are removed later", "reason", err.Error())
	}
	return c.artifact(e), nil
}

// replaceEntry writes e to the index. The files of the entry that it replaces
// get the present time, so that sweep() measures their age from now.
func (c *Cache) replaceEntry(e entry) error {
	r, err := ParseRef(e.Reference)
	if err != nil {
		return err
	}
	if old, err := c.readEntry(c.indexPath(key(r, e.Format))); err == nil {
		for _, b := range old.Files {
			if !slices.Contains(e.Files, b) {
				now := c.o.Clock()
				if err := os.Chtimes(c.blobPath(b.SHA256), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
	}
	return c.writeEntry(e)
}

// sweep removes files that no index entry names and that are at least as old as
// age.
func (c *Cache) sweep(age time.Duration) error {
	unlock, err := c.lockBlobs()
	if err != nil {
		return err
	}
	defer unlock()
	return c.sweepLocked(age)
}

// sweepLocked is sweep for a caller that holds the lock of the blobs.
func (c *Cache) sweepLocked(age time.Duration) error {
	all, err := c.entries()
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, e := range all {
		for _, b := range e.Files {
			needed[b.SHA256] = true
		}
	}
	files, err := os.ReadDir(filepath.Join(c.o.Dir, blobsDir))
	if err != nil {
		return err
	}
	for _, f := range files {
		info, err := f.Info()
		if err == nil && !needed[f.Name()] && c.o.Clock().Sub(info.ModTime()) >= age {
			if err := os.Remove(c.blobPath(f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// maxQuarantine is how many damaged files are kept for inspection.
const maxQuarantine = 4

// quarantine moves a damaged file to quarantineDir and removes every index
// entry that names the file.
func (c *Cache) quarantine(sum string) error {
	unlock, err := c.lockBlobs()
	if err != nil {
		return err
	}
	defer unlock()
	dir := filepath.Join(c.o.Dir, quarantineDir)
	if err := os.Rename(c.blobPath(sum), filepath.Join(dir, sum)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all, err := c.entries()
	if err != nil {
		return err
	}
	for _, e := range all {
		r, err := ParseRef(e.Reference)
		if err != nil || !slices.ContainsFunc(e.Files, func(b blob) bool { return b.SHA256 == sum }) {
			continue
		}
		if err := os.Remove(c.indexPath(key(r, e.Format))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for i := 0; i < len(files)-maxQuarantine; i++ {
		if files[i].Name() != sum {
			_ = os.Remove(filepath.Join(dir, files[i].Name()))
		}
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Sync()
}

// isTemp reports whether the name belongs to unfinished work.
func isTemp(name string) bool { return strings.HasSuffix(name, tempSuffix) }
