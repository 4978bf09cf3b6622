package storage

import (
	"path/filepath"
	"regexp"
	"strings"

	"hostler/internal/fault"
)

// Unit is the unit in bytes to which sizes are rounded up. It is the page size
// of most machines and the block size of most filesystems.
const Unit = 4096

// The bounds of a size, in bytes. Linux files cannot exceed 8 EiB; the upper
// bound leaves room for arithmetic.
const (
	MinSize = 1 << 20
	MaxSize = 1 << 60
)

var (
	idForm    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	stampForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
)

// ValidateID refuses ids that are not plain names. Ids become parts of paths.
func ValidateID(id string) error {
	if !idForm.MatchString(id) {
		return fault.New(fault.Invalid, "%q is not an id: it must be a lower case letter followed by up to 62 lower case letters, digits and dashes", id)
	}
	return nil
}

// Validate refuses malformed ids and stamps.
func (r Ref) Validate() error {
	if err := ValidateID(r.ID); err != nil {
		return err
	}
	if !stampForm.MatchString(r.Stamp.Namespace) || !stampForm.MatchString(r.Stamp.UID) {
		return fault.New(fault.Invalid, "%s has no proper stamp: namespace %q, uid %q", r.ID, r.Stamp.Namespace, r.Stamp.UID)
	}
	return nil
}

// ValidateIn refuses malformed references, and stamps of another namespace.
func (r Ref) ValidateIn(namespace string) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if r.Stamp.Namespace != namespace {
		return fault.New(fault.Invalid, "%s has the namespace %q, not %q", r.ID, r.Stamp.Namespace, namespace)
	}
	return nil
}

// ValidateSize refuses sizes, in bytes, that are out of bounds.
func ValidateSize(size int64) error {
	switch {
	case size < MinSize:
		return fault.New(fault.Invalid, "a size of %d bytes is too small; the minimum is %s", size, Bytes(MinSize))
	case size > MaxSize:
		return fault.New(fault.Invalid, "a size of %d bytes is too large", size)
	}
	return nil
}

// RoundSize rounds a size up to the next multiple of Unit.
func RoundSize(size int64) int64 { return (size + Unit - 1) / Unit * Unit }

// ValidatePath refuses mount points that are not absolute, not clean, or the
// root of the host.
func ValidatePath(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" || strings.ContainsFunc(path, control) {
		return fault.New(fault.Invalid, "%q is not a mount point: it must be an absolute path without . and .. below the root", path)
	}
	return nil
}

func control(r rune) bool { return r < ' ' || r == 0x7f }
