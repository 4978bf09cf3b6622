package storage

// Stamp says whose an object is.
type Stamp struct {
	// Namespace is that of the agent.
	Namespace string `json:"namespace"`
	// UID is that of the declared object: a new one with an old name is
	// another object.
	UID string `json:"uid"`
}

// Ref names one object.
type Ref struct {
	// ID is the object's name; see ValidateID.
	ID    string `json:"id"`
	Stamp Stamp  `json:"stamp"`
}

// VolumeParams says what volume to make.
type VolumeParams struct {
	Ref
	// Size is in bytes; it is rounded up to RoundSize.
	Size int64
	// Sparse volumes take space of the host only as they are written; others
	// have all of theirs from the start.
	Sparse bool
	// Record is kept beside the stamp; see Recorder.
	Record string
	// Progress, when set, is told how many bytes of how many are done.
	Progress func(done, total int64)
}

// Volume is a volume as it was found.
type Volume struct {
	Ref
	// Size is what the volume holds, Allocated what it takes of the host now,
	// both in bytes.
	Size, Allocated int64
	Sparse          bool
	// Path is where its data is on the host.
	Path string
	// Attachments holds one entry, or none; more where somebody else attached
	// the volume again.
	Attachments []VolumeAttachment
	// Record is what the caller last kept beside the stamp.
	Record string
	// Problem says what is wrong with the volume itself, such as data that
	// somebody removed; empty when nothing is.
	Problem string
}

// VolumeAttachParams says how to attach a volume.
type VolumeAttachParams struct {
	Ref
	ReadOnly bool
}

// VolumeAttachment is a volume's block device.
type VolumeAttachment struct {
	// Device is its path, such as /dev/loop3, and changes from one start of
	// the host to the next.
	Device       string
	Major, Minor uint32
	ReadOnly     bool
	// DirectIO says that the device does not fill the page cache twice.
	DirectIO bool
}

// FilesystemParams says what filesystem to make.
type FilesystemParams struct {
	Ref
	// Size is in bytes, where the source does not take it from Device.
	Size int64
	// Type, Device and Wipe are for filesystems on a volume. Device is the
	// volume's block device as it is now.
	Type   string
	Device string
	// Wipe lets foreign data on the device be destroyed.
	Wipe bool
	// Anew: a person knows that what was made is gone, and has it made again,
	// empty, where the device is proven blank.
	Anew bool
	// Record is kept beside the stamp; see Recorder.
	Record string
	// Progress, when set, is told in words how far it is.
	Progress func(message string)
}

// Filesystem is a filesystem as it was found.
type Filesystem struct {
	Ref
	Type string
	// Size and Free are in bytes; Free is 0 while it is not mounted.
	Size, Free int64
	// Growable is how many bytes its device is larger than it, where growing
	// would gain something; 0 while it is not mounted.
	Growable int64
	// UUID and Label are what the filesystem on a device bears.
	UUID, Label string
	Attachments []FilesystemAttachment
	// Held is a block device that the source still has of the host for it
	// though nobody was given its mount; Detach gives it back.
	Held string
	// Options are those that it was mounted with; nil while it is not mounted,
	// or when that is not known.
	Options []string
	// Record is what the caller last kept beside the stamp.
	Record string
	// Problem says what is wrong with the filesystem itself; empty when
	// nothing is.
	Problem string
	// Unmade: its making was interrupted before anything could be kept in it;
	// Create goes on with it.
	Unmade bool
}

// FilesystemAttachParams says where to mount a filesystem.
type FilesystemAttachParams struct {
	Ref
	// Path is absolute; see ValidatePath.
	Path string
	// Device is the volume's block device as it is now, where it is on one.
	Device   string
	ReadOnly bool
	// Options are mount options, one per entry.
	Options []string
}

// FilesystemAttachment is one mount of a filesystem.
type FilesystemAttachment struct {
	Path     string
	Device   string
	ReadOnly bool
	// Unrestricted: the mount lacks an option of mounts.Restrict, as one that an
	// earlier version made does. Attach restricts it while it is in use.
	Unrestricted bool
	// Size and Free are in bytes.
	Size, Free int64
}

// RecordParams says what to keep beside the stamp of an object.
type RecordParams struct {
	Ref
	Record string
}

// DetachParams says what to take away.
type DetachParams struct {
	Ref
	// Path is the mount of a filesystem; empty means all of its mounts, and
	// is all there is for volumes.
	Path string
	// Force takes it out of sight although it is in use: the users keep what
	// they have open, and the last of them frees it.
	Force bool
}

// GrowParams says how large an object is to be, in bytes.
type GrowParams struct {
	Ref
	Size     int64
	Progress func(done, total int64)
}

// Space is how full a filesystem of the host is, in bytes.
type Space struct {
	Path        string
	Total, Free int64
	// Promised is what sparse volumes may still come to need.
	Promised int64
}
