// Package storage is the contract of everything that provides volumes (block
// devices) and filesystems to one host: what a source is asked, what it
// answers, and the errors that a caller may act on. Sources stand in folders
// of their own; package storagetest shows that they keep the contract.
//
// Calls are in bulk and never fail as a whole: each item has its own result,
// in the order of the items. All calls are idempotent: making what is there,
// attaching what is attached, detaching or destroying what is gone succeed.
// An object is known by its id and its stamp; one that bears another stamp,
// or none, is never changed (fault.Conflict). Errors carry a kind of package
// fault; a BusyError or SpaceError may be found in their chain.
//
// Nothing here destroys data but Destroy, and Create of a filesystem on a
// device for which Wipe was said.
package storage

import "context"

// VolumeSource provides block devices.
type VolumeSource interface {
	// Create makes volumes, attached nowhere. One that exists with this stamp
	// is returned as it is, whatever its size.
	Create(ctx context.Context, volumes []VolumeParams) []Result[Volume]
	// Attach makes volumes block devices of this host, until Detach or until
	// the host's next start. A failure never harms the volume.
	Attach(ctx context.Context, volumes []VolumeAttachParams) []Result[VolumeAttachment]
	// Detach takes the block devices of volumes away. One in use is a
	// BusyError that names its users, and stays usable.
	Detach(ctx context.Context, volumes []DetachParams) []error
	// Destroy deletes volumes with their data. An attached one is a BusyError.
	Destroy(ctx context.Context, volumes []Ref) []error
	// List returns every volume that bears the source's namespace, with its
	// attachments: all of them, or an error.
	List(ctx context.Context) ([]Volume, error)
}

// FilesystemSource provides mounted directories.
type FilesystemSource interface {
	// Create makes filesystems, mounted nowhere. One that exists with this
	// stamp is returned as it is, whatever its size.
	Create(ctx context.Context, filesystems []FilesystemParams) []Result[Filesystem]
	// Attach mounts filesystems at paths, until Detach or until the host's
	// next start, without setuid programs and devices whatever the options say
	// (nosuid, nodev). The directory is made where it is missing; one that holds
	// anything is refused (fault.NeedsOperator) with what is in it. One whose
	// device is proven blank has lost its data: fault.NotFound, also of Create
	// without Anew.
	Attach(ctx context.Context, filesystems []FilesystemAttachParams) []Result[FilesystemAttachment]
	// Detach unmounts filesystems from paths and removes the empty directory.
	// A mount in use is a BusyError that names its users, and stays usable.
	Detach(ctx context.Context, filesystems []DetachParams) []error
	// Destroy deletes filesystems with what the source itself keeps for them.
	// A mounted one is a BusyError. The data of a filesystem on a volume goes
	// with its volume, not here.
	Destroy(ctx context.Context, filesystems []Ref) []error
	// List returns every filesystem that bears the source's namespace, with
	// its attachments: all of them, or an error.
	List(ctx context.Context) ([]Filesystem, error)
}

// VolumeValidator is a source that can say beforehand, without looking at the
// host, that parameters are wrong (fault.Invalid).
type VolumeValidator interface {
	ValidateVolume(p VolumeParams) error
}

// FilesystemValidator is a source that can say beforehand, without looking at
// the host, that parameters are wrong (fault.Invalid).
type FilesystemValidator interface {
	ValidateFilesystem(p FilesystemParams) error
}

// VolumeDescriber is a source that can look at single volumes. One that does
// not exist is fault.NotFound.
type VolumeDescriber interface {
	DescribeVolumes(ctx context.Context, volumes []Ref) []Result[Volume]
}

// FilesystemDescriber is a source that can look at single filesystems. One
// that does not exist is fault.NotFound.
type FilesystemDescriber interface {
	DescribeFilesystems(ctx context.Context, filesystems []Ref) []Result[Filesystem]
}

// VolumeGrower is a source whose volumes can grow, attached or not, in use or
// not. A size below the present one is fault.Invalid.
type VolumeGrower interface {
	GrowVolumes(ctx context.Context, volumes []GrowParams) []Result[Volume]
}

// FilesystemGrower is a source whose filesystems can grow while mounted. One
// on a volume grows to the volume's size, whatever the size given.
type FilesystemGrower interface {
	GrowFilesystems(ctx context.Context, filesystems []GrowParams) []Result[Filesystem]
}

// Recorder is a source that keeps a text of its caller, of at most 32 KiB,
// durably beside the stamp of each object: what was declared is found there
// when the caller's own memory is lost. The text means nothing to the source.
type Recorder interface {
	// Record replaces the texts. An object that is gone is success.
	Record(ctx context.Context, objects []RecordParams) []error
}

// Dependent is a source that needs a package of the host for a type of
// filesystem, which it installs by itself when it needs it.
type Dependent interface {
	// Missing returns the package that a type still lacks, "" for none. The
	// type is the declared one, which may be empty.
	Missing(kind string) string
}

// SpaceReporter is a source that lives on a filesystem of the host which may
// fill up.
type SpaceReporter interface {
	Space(ctx context.Context) (Space, error)
}

// Result is what became of one item of a bulk call.
type Result[T any] struct {
	Value T
	Err   error
}

// Each answers items one after the other. A context that has ended answers
// the rest.
func Each[P, T any](ctx context.Context, items []P, one func(context.Context, P) (T, error)) []Result[T] {
	results := make([]Result[T], len(items))
	for i, item := range items {
		if results[i].Err = ctx.Err(); results[i].Err == nil {
			results[i].Value, results[i].Err = one(ctx, item)
		}
	}
	return results
}

// EachError is Each for calls that answer only an error.
func EachError[P any](ctx context.Context, items []P, one func(context.Context, P) error) []error {
	errs := make([]error, len(items))
	for i, item := range items {
		if errs[i] = ctx.Err(); errs[i] == nil {
			errs[i] = one(ctx, item)
		}
	}
	return errs
}
