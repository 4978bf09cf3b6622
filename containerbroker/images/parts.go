package images

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hostler/internal/fault"
)

// A download that was too slow or was cancelled leaves its bytes in partsDir,
// and the next download of the same address goes on with them. Parts are never
// trusted: the server proves with the version (If-Range) that it still has the
// same file, and the whole file's digest is checked.

// The bounds of the parts. Older parts are removed: hardly any server has the
// same file then. The total size is that of one largest image.
const (
	maxPartAge   = 7 * 24 * time.Hour
	maxPartsSize = MaxSize
)

// maxVersion bounds a version in bytes, because a part's file name (at most 255
// bytes) has the version in base64.
const maxVersion = 150

// partPrefix returns the beginning of the file name of an address's part. The
// address may hold a token, so the name has a digest of the address.
func partPrefix(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:16]) + "."
}

// takePart moves a former download's part to path and returns its version. It
// returns "" if there is none. Of several processes, one gets the part.
func (c *Cache) takePart(address, path string) (version string) {
	for _, p := range c.parts() {
		encoded, is := strings.CutPrefix(p.name, partPrefix(address))
		if !is {
			continue
		}
		decoded, err := base64.RawURLEncoding.DecodeString(encoded)
		if err == nil && len(decoded) > 0 && os.Rename(c.partPath(p.name), path) == nil {
			return string(decoded)
		}
		_ = os.Remove(c.partPath(p.name))
	}
	return ""
}

// keepPart keeps the bytes of an incomplete download at path, which it moves or
// removes.
func (c *Cache) keepPart(address, path, version string) {
	name := partPrefix(address) + base64.RawURLEncoding.EncodeToString([]byte(version))
	if version == "" || len(version) > maxVersion || os.Rename(path, c.partPath(name)) != nil {
		_ = os.Remove(path)
		return
	}
	now := c.o.Clock()
	_ = os.Chtimes(c.partPath(name), now, now)
	c.dropParts()
}

// dropParts removes parts that are too old, and the oldest parts beyond the
// total size.
func (c *Cache) dropParts() {
	all, total := c.parts(), int64(0)
	for _, p := range slices.Backward(all) { // newest first
		if total += p.size; total > maxPartsSize || c.o.Clock().Sub(p.written) > maxPartAge {
			_ = os.Remove(c.partPath(p.name))
		}
	}
}

// dropOldestPart removes the oldest part; it returns false if there is none.
func (c *Cache) dropOldestPart() bool {
	all := c.parts()
	if len(all) == 0 {
		return false
	}
	err := os.Remove(c.partPath(all[0].name))
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

type partialDownload struct {
	name    string
	size    int64
	written time.Time
}

// parts returns the kept parts, oldest first.
func (c *Cache) parts() []partialDownload {
	found, _ := os.ReadDir(filepath.Join(c.o.Dir, partsDir))
	all := make([]partialDownload, 0, len(found))
	for _, f := range found {
		if info, err := f.Info(); err == nil {
			all = append(all, partialDownload{f.Name(), info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b partialDownload) int {
		return cmp.Or(a.written.Compare(b.written), strings.Compare(a.name, b.name))
	})
	return all
}

func (c *Cache) partPath(name string) string { return filepath.Join(c.o.Dir, partsDir, name) }

// resumable reports whether a later download can go on after this error. A file
// that is too large or absent, or that the disk has no room for, is not kept.
func (t *transfer) resumable(err error, cancelled bool) bool {
	return t.have > 0 && !t.full && (cancelled || fault.KindOf(err) == fault.Transient)
}
