// Package images turns image references into verified files. It parses
// references and asks the configured sources in order. Images are built,
// downloaded or imported, then scanned and kept in a cache addressed by
// content.
package images

import (
	"context"
	"time"
)

// Format is the format of an image file.
type Format string

// The formats.
const (
	// FormatLXD is an LXD image: a unified tar (possibly compressed) with
	// metadata.yaml and rootfs/, or a metadata tar with a squashfs.
	FormatLXD Format = "lxd"
	// FormatDisk is a bootable qcow2 or raw disk.
	FormatDisk Format = "disk"
)

func (f Format) known() bool { return f == FormatLXD || f == FormatDisk }

// Artifact is a verified image in the cache.
type Artifact struct {
	// Reference for which the image was fetched or built.
	Reference string
	// Digest is the hex sha256 of the content. For a split image it covers
	// metadata followed by rootfs, like LXD's own fingerprint.
	Digest string
	Format Format
	// Path is the file; for a split image Path is the metadata tarball and
	// Rootfs the squashfs. Both are mode 0600.
	Path, Rootfs string
	Size         int64 // bytes, both files
	Created      time.Time
	// Own, if set, is the hypervisor's id of an image in its own store. Then
	// there is no file, and of the other fields only Reference is set.
	Own string
}

// Own asks a hypervisor for an image in its own store and returns the id;
// fault.NotFound if the hypervisor has none.
type Own func(ctx context.Context) (id string, err error)

// Progress receives a short text and the percentage (0–100, -1 unknown).
type Progress func(message string, percent int)

// Provider is the part of the cache that drivers use.
type Provider interface {
	// Ensure returns a verified artifact for a reference, and builds or fetches
	// it if needed. Concurrent calls for the same reference share the work and
	// all receive its progress. Errors: fault.Invalid for a malformed
	// reference, fault.NotFound if no source has the image, transient
	// otherwise.
	Ensure(ctx context.Context, ref string, format Format, progress Progress) (Artifact, error)
	// EnsureOrOwn is Ensure for a hypervisor with its own image names. For an
	// os/release that the cache does not hold, it calls own at the place of
	// "local" among the sources. Errors of own other than fault.NotFound are
	// returned.
	EnsureOrOwn(ctx context.Context, ref string, format Format, own Own, progress Progress) (Artifact, error)
}
