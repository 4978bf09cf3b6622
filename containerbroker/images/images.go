// Package images turns image references into verified files. It parses
// references and asks the configured sources in order. Images are built,
// downloaded or imported. Then they are scanned and kept in a cache, in files
// named by their sha256.
package images

import (
	"context"
	"time"
)

// Format is the format of an image file.
type Format string

// The formats.
const (
	// FormatLXD is an LXD image. It is either one tar, which may be compressed,
	// with metadata.yaml and rootfs/ (unified), or a metadata tar and a
	// squashfs (split).
	FormatLXD Format = "lxd"
	// FormatDisk is a bootable qcow2 or raw disk.
	FormatDisk Format = "disk"
)

func (f Format) known() bool { return f == FormatLXD || f == FormatDisk }

// Artifact is a verified image in the cache.
type Artifact struct {
	// Reference is the reference for which the image was fetched or built.
	Reference string
	// Digest is the hex sha256 of the content. For a split image it is the
	// sha256 of the metadata tar followed by the squashfs, like LXD's own
	// fingerprint.
	Digest string
	Format Format
	// Path is the path of the file. For a split image, Path is the metadata tar
	// and Rootfs the squashfs. Both files have mode 0600.
	Path, Rootfs string
	Size         int64 // bytes, both files
	Created      time.Time
	// Own is the hypervisor's id of the image if the image is in the
	// hypervisor's own store. Then there is no file, and besides Own only
	// Reference is set.
	Own string
}

// Own asks a hypervisor for an image in its own store and returns the image's
// id. It returns fault.NotFound if the hypervisor does not have the image.
type Own func(ctx context.Context) (id string, err error)

// Progress receives a short text and the percentage, 0 to 100, or -1 if it is
// not known.
type Progress func(message string, percent int)

// Provider is the part of the cache that drivers use.
type Provider interface {
	// Ensure returns a verified artifact for a reference, and builds or fetches
	// it if needed. Concurrent calls for the same reference share the work, and
	// each receives its progress. Ensure returns fault.Invalid for a malformed
	// reference, fault.NotFound if no source has the image, and otherwise
	// mostly transient errors.
	Ensure(ctx context.Context, ref string, format Format, progress Progress) (Artifact, error)
	// EnsureOrOwn is like Ensure, for a hypervisor that has its own images. For
	// an os/release that is not in the cache, it calls own when it comes to
	// "local" in the order of the sources. It returns an error of own, unless
	// that is fault.NotFound.
	EnsureOrOwn(ctx context.Context, ref string, format Format, own Own, progress Progress) (Artifact, error)
}
