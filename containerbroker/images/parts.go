package images

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hostler/internal/fault"
)

// A download that was too slow or was cancelled leaves its bytes in partsDir,
// and the next download of the same address goes on with them. Parts are never
// trusted. The request names the part's version (If-Range), so that the server
// sends the rest only if it still has the same file, and the digest of the
// whole file is checked.

// keptParts are the parts. After a week hardly any server still has the same
// file. All parts together may be as large as the largest permitted image.
var keptParts = keptFiles{pattern: partsDir + "/*", maxAge: 7 * 24 * time.Hour, maxSize: maxImageSize}

// maxVersion bounds a version in bytes, because a part's file name (at most 255
// bytes) has the version in base64.
const maxVersion = 150

// partPrefix returns the beginning of the file name of an address's part. The
// address may hold a token, so the name has a digest of the address.
func partPrefix(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:16]) + "."
}

// takePart moves the part of an earlier download to path and returns the part's
// version, or "" if there is no part. If several processes try, only one gets
// the part.
func (c *Cache) takePart(address, path string) (version string) {
	for _, p := range c.list(keptParts) {
		encoded, is := strings.CutPrefix(filepath.Base(p.path), partPrefix(address))
		if !is {
			continue
		}
		decoded, err := base64.RawURLEncoding.DecodeString(encoded)
		if err == nil && len(decoded) > 0 && os.Rename(p.path, path) == nil {
			return string(decoded)
		}
		_ = os.Remove(p.path)
	}
	return ""
}

// keepPart keeps the file at path as a part, or removes the file if it has no
// usable version.
func (c *Cache) keepPart(address, path, version string) {
	name := partPrefix(address) + base64.RawURLEncoding.EncodeToString([]byte(version))
	if version == "" || len(version) > maxVersion || os.Rename(path, c.partPath(name)) != nil {
		_ = os.Remove(path)
		return
	}
	now := c.o.Clock()
	_ = os.Chtimes(c.partPath(name), now, now)
	c.trim(keptParts)
}

func (c *Cache) partPath(name string) string { return filepath.Join(c.o.Dir, partsDir, name) }

// resumable reports whether a later download can go on after this error. It
// cannot if the server has no such file, or if the file is too large or does
// not fit on the disk.
func (t *transfer) resumable(err error, cancelled bool) bool {
	return t.have > 0 && !t.full && (cancelled || fault.KindOf(err) == fault.Transient)
}
