// Package images turns image references into verified files: it parses
// references, asks the configured sources in order, builds, downloads or
// imports, checks what came and keeps it in a cache addressed by content.
package images

import (
	"context"
	"time"
)

// Format is what an image file is.
type Format string

// The formats.
const (
	// FormatLXD is a unified LXD image: one (compressed) tar with
	// metadata.yaml and rootfs/, or squashfs rootfs as a split pair.
	FormatLXD Format = "lxd"
	// FormatDisk is a bootable qcow2 or raw disk.
	FormatDisk Format = "disk"
)

func (f Format) known() bool { return f == FormatLXD || f == FormatDisk }

// Artifact is a verified file in the cache.
type Artifact struct {
	// Reference it was fetched or built for.
	Reference string
	// Digest is the hex sha256 over the content (for a split image: over
	// metadata followed by rootfs, which is LXD's own fingerprint).
	Digest string
	Format Format
	// Path is the file; for a split image Path is the metadata tarball and
	// Rootfs the squashfs. Both are mode 0600.
	Path, Rootfs string
	Size         int64 // bytes, both files
	Created      time.Time
	// Own, where it is set, is the hypervisor's id of an image of its own: there
	// is no file, and only Reference is set besides.
	Own string
}

// Own asks a hypervisor for an image of its own and returns its id of it;
// fault.NotFound if it has none.
type Own func(ctx context.Context) (id string, err error)

// Progress receives what is happening and how far it is (0–100, -1 unknown).
type Progress func(message string, percent int)

// Provider is what a driver needs of the cache.
type Provider interface {
	// Ensure returns a verified artifact for a reference, making or fetching
	// it if needed; concurrent calls for one reference share the work and all
	// receive its progress. Errors: fault.Invalid for a reference that cannot
	// be right, fault.NotFound when no source has it, transient otherwise.
	Ensure(ctx context.Context, ref string, format Format, progress Progress) (Artifact, error)
	// EnsureOrOwn is Ensure for a hypervisor that names images itself: for an
	// os/release that the cache does not hold, own is asked where "local" stands
	// among the sources. Its errors other than fault.NotFound are errors of
	// this.
	EnsureOrOwn(ctx context.Context, ref string, format Format, own Own, progress Progress) (Artifact, error)
}
