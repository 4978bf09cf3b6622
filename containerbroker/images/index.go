package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// The directories in the cache.
const (
	blobsDir      = "blobs"      // files by their sha256
	indexDir      = "index"      // one JSON file per reference and format
	locksDir      = "locks"      // one lock file per reference and format
	tmpDir        = "tmp"        // unfinished work
	partsDir      = "parts"      // incomplete downloads
	debsDir       = "debs"       // packages that builds downloaded, by archive
	quarantineDir = "quarantine" // files with a wrong digest
)

// entry is the index entry for a reference and format.
type entry struct {
	Reference string    `json:"reference"`
	Format    Format    `json:"format"`
	Digest    string    `json:"digest"`
	Files     []blob    `json:"files"`
	Source    string    `json:"source"`
	Created   time.Time `json:"created"`
}

// blob is a file of an image.
type blob struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// key returns the name, without suffix, of the index file and the lock file for
// a reference and format.
func key(r Ref, format Format) string {
	sum := sha256.Sum256([]byte(string(format) + "\n" + r.String()))
	return hex.EncodeToString(sum[:16])
}

func (c *Cache) blobPath(sum string) string   { return filepath.Join(c.o.Dir, blobsDir, sum) }
func (c *Cache) indexPath(name string) string { return filepath.Join(c.o.Dir, indexDir, name+".json") }

// artifact converts an entry for the callers.
func (c *Cache) artifact(e entry) Artifact {
	a := Artifact{Reference: e.Reference, Digest: e.Digest, Format: e.Format, Created: e.Created}
	for i, b := range e.Files {
		a.Size += b.Size
		if i == 0 {
			a.Path = c.blobPath(b.SHA256)
		} else {
			a.Rootfs = c.blobPath(b.SHA256)
		}
	}
	return a
}

// readEntry reads an index file. A damaged file counts as absent, because its
// image can be fetched again.
func (c *Cache) readEntry(path string) (entry, error) {
	var e entry
	data, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return e, fault.New(fault.NotFound, "local has no such image")
		}
		return e, fmt.Errorf("cannot read image index: %w", err)
	}
	if err := json.Unmarshal(data, &e); err != nil || !e.plausible() {
		c.log.Warn("image index entry is damaged and is ignored", "file", path)
		return entry{}, fault.New(fault.NotFound, "local has no such image")
	}
	return e, nil
}

// plausible reports whether an entry is well formed. A damaged entry could
// otherwise name files outside the cache.
func (e entry) plausible() bool {
	if !digestPattern.MatchString(e.Digest) || len(e.Files) < 1 || len(e.Files) > 2 {
		return false
	}
	return !slices.ContainsFunc(e.Files, func(b blob) bool { return !digestPattern.MatchString(b.SHA256) || b.Size < 0 })
}

// entries returns the whole index, ordered by reference.
func (c *Cache) entries() ([]entry, error) {
	files, err := os.ReadDir(filepath.Join(c.o.Dir, indexDir))
	if err != nil {
		return nil, fmt.Errorf("cannot read image index: %w", err)
	}
	var all []entry
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".json") || strings.HasPrefix(f.Name(), ".") {
			continue
		}
		e, err := c.readEntry(filepath.Join(c.o.Dir, indexDir, f.Name()))
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int {
		return strings.Compare(a.Reference+"\n"+string(a.Format), b.Reference+"\n"+string(b.Format))
	})
	return all, nil
}

// lookup returns a verified artifact from the cache, or fault.NotFound. stale
// is true if the source should be asked for a newer image.
func (c *Cache) lookup(ctx context.Context, r Ref, format Format) (a Artifact, stale bool, err error) {
	e, err := c.readEntry(c.indexPath(key(r, format)))
	if fault.Is(err, fault.NotFound) && r.Digest != "" {
		e, err = c.lookupDigest(r, format)
	}
	if err != nil {
		return Artifact{}, false, err
	}
	if !c.mayUseLocal(r, e.Source) {
		return Artifact{}, false, fault.New(fault.NotFound, "local is not among the sources")
	}
	if err := c.proveEntry(ctx, e); err != nil {
		if ctx.Err() != nil {
			return Artifact{}, false, ctx.Err()
		}
		return Artifact{}, false, fault.New(fault.NotFound, "local had it, but %v", err)
	}
	// Imported images and images pinned by digest do not age.
	stale = c.o.Refresh > 0 && r.Digest == "" && e.Source != sourceLocal && c.o.Clock().Sub(e.Created) > c.o.Refresh
	return c.artifact(e), stale, nil
}

// lookupDigest finds the image with the digest of r that was stored under
// another reference. It returns fault.NotFound if there is none.
func (c *Cache) lookupDigest(r Ref, format Format) (entry, error) {
	all, err := c.entries()
	if err != nil {
		return entry{}, err
	}
	for _, e := range all {
		if e.Digest == r.Digest && e.Format == format {
			e.Reference = r.String()
			return e, nil
		}
	}
	return entry{}, fault.New(fault.NotFound, "local has no such image")
}

// proveEntry verifies all files of an entry. If a file is damaged, it returns
// an error, moves the file to the quarantine and removes the entry from the
// index.
func (c *Cache) proveEntry(ctx context.Context, e entry) error {
	for _, b := range e.Files {
		err := c.proofs.prove(ctx, c.blobPath(b.SHA256), b)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.log.Warn("image file is damaged and is fetched again when needed", "image", oneline.Address(e.Reference), "file", b.SHA256, "reason", err.Error())
		if err := c.quarantine(b.SHA256); err != nil {
			return err
		}
		return err
	}
	return nil
}

func (c *Cache) writeEntry(e entry) error {
	r, err := ParseRef(e.Reference)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(c.indexPath(key(r, e.Format)), data, 0o600)
}

func (c *Cache) deleteEntry(ctx context.Context, e entry) error {
	r, err := ParseRef(e.Reference)
	if err != nil {
		return err
	}
	unlock, err := c.lock(ctx, key(r, e.Format), nil)
	if err != nil {
		return err
	}
	defer unlock()
	return atomicfile.Remove(c.indexPath(key(r, e.Format)))
}
