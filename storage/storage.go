// Package storage is the contract of all sources, which provide volumes (block
// devices) and filesystems to a host. It holds the interfaces, their parameters
// and results, and the errors that a caller may act on. Each source has a
// package of its own; package storagetest tests that sources keep the contract.
//
// Calls are in bulk and never fail as a whole. Each item has its own result, in
// the order of the items. All calls are idempotent. Creating an existing
// object, attaching an object twice, and detaching or destroying an absent
// object succeed. An id and a stamp identify an object; an object with another
// stamp, or none, is never changed (fault.Conflict). Errors carry a kind of
// package fault; a BusyError or SpaceError may be found in their chain.
//
// Data is destroyed only by Destroy, and by Create of a filesystem with Wipe.
package storage

import "context"

// VolumeSource provides block devices.
type VolumeSource interface {
	// Create makes volumes without attaching them. An existing volume with this
	// stamp is returned unchanged, whatever its size.
	Create(ctx context.Context, volumes []VolumeParams) []Result[Volume]
	// Attach gives each volume a block device on this host, until Detach or the
	// host's next start. A failure never harms the volume.
	Attach(ctx context.Context, volumes []VolumeAttachParams) []Result[VolumeAttachment]
	// Detach removes the block devices of volumes. A busy device stays usable;
	// its error is a BusyError that names the users.
	Detach(ctx context.Context, volumes []DetachParams) []error
	// Destroy deletes volumes with their data. The error for an attached volume
	// is a BusyError.
	Destroy(ctx context.Context, volumes []Ref) []error
	// List returns all volumes of the source's namespace, with their attachments,
	// or an error.
	List(ctx context.Context) ([]Volume, error)
}

// FilesystemSource provides mounted directories.
type FilesystemSource interface {
	// Create makes filesystems without mounting them. An existing filesystem
	// with this stamp is returned unchanged, whatever its size.
	Create(ctx context.Context, filesystems []FilesystemParams) []Result[Filesystem]
	// Attach mounts filesystems at paths, until Detach or the host's next start,
	// always with nosuid and nodev, whatever the options say. It makes a missing
	// directory and refuses a directory with contents (fault.NeedsOperator),
	// naming the contents. If a device is proven blank, its filesystem has lost
	// its data. Attach, and Create without Anew, then return fault.NotFound.
	Attach(ctx context.Context, filesystems []FilesystemAttachParams) []Result[FilesystemAttachment]
	// Detach unmounts filesystems from paths and removes the empty directory. A
	// busy mount stays usable; its error is a BusyError that names the users.
	Detach(ctx context.Context, filesystems []DetachParams) []error
	// Destroy deletes filesystems and the source's files for them. The error for
	// a mounted filesystem is a BusyError. Destroy keeps the data of a filesystem
	// on a volume; the data is deleted with the volume.
	Destroy(ctx context.Context, filesystems []Ref) []error
	// List returns all filesystems of the source's namespace, with their
	// attachments, or an error.
	List(ctx context.Context) ([]Filesystem, error)
}

// VolumeValidator is a source that can check parameters without looking at the
// host. The error for wrong parameters is fault.Invalid.
type VolumeValidator interface {
	ValidateVolume(p VolumeParams) error
}

// FilesystemValidator is a source that can check parameters without looking at
// the host. The error for wrong parameters is fault.Invalid.
type FilesystemValidator interface {
	ValidateFilesystem(p FilesystemParams) error
}

// VolumeDescriber is a source that can describe single volumes. The error for a
// missing volume is fault.NotFound.
type VolumeDescriber interface {
	DescribeVolumes(ctx context.Context, volumes []Ref) []Result[Volume]
}

// VolumeGrower is a source whose volumes can grow, even while attached or in
// use. The error for a size below the present size is fault.Invalid.
type VolumeGrower interface {
	GrowVolumes(ctx context.Context, volumes []GrowParams) []Result[Volume]
}

// FilesystemGrower is a source whose filesystems can grow while mounted. A
// filesystem on a volume grows to the volume's size and ignores the given size.
type FilesystemGrower interface {
	GrowFilesystems(ctx context.Context, filesystems []GrowParams) []Result[Filesystem]
}

// Recorder is a source that stores a text with each object, durably and beside
// the object's stamp. A text has at most 32 KiB, and the source does not
// interpret it. The caller stores the object's declaration there, and reads it
// back if the caller's own store is lost.
type Recorder interface {
	// StoreRecords replaces the texts. It succeeds for a missing object.
	StoreRecords(ctx context.Context, objects []RecordParams) []error
}

// Dependent is a source that needs a package on the host for a type of
// filesystem. The source installs the package itself.
type Dependent interface {
	// Missing returns the package that is not yet installed for a type, or "".
	// The type is the declared type, which may be empty.
	Missing(kind string) string
}

// SpaceReporter is a source whose data is on a filesystem of the host that may
// fill up.
type SpaceReporter interface {
	Space(ctx context.Context) (Space, error)
}

// Result is the result of an item of a bulk call.
type Result[T any] struct {
	Value T
	Err   error
}
