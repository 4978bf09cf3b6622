package storage

// Stamp identifies the owner of an object.
type Stamp struct {
	// Namespace is the namespace of the agent.
	Namespace string `json:"namespace"`
	// UID is the uid of the declared object. A new object with an old name has a
	// new uid.
	UID string `json:"uid"`
}

// Ref names an object.
type Ref struct {
	// ID is the object's name; see ValidateID.
	ID    string `json:"id"`
	Stamp Stamp  `json:"stamp"`
}

// VolumeParams describe a volume to create.
type VolumeParams struct {
	Ref
	// Size is in bytes. The source rounds it up; see RoundSize.
	Size int64
	// Sparse is true if the volume takes space on the host only as data is
	// written. Other volumes take all their space at creation.
	Sparse bool
	// Record is stored beside the stamp; see Recorder.
	Record string
	// Progress, if set, receives the bytes done and the total.
	Progress func(done, total int64)
}

// Volume is an observed volume.
type Volume struct {
	Ref
	// Size is the volume's capacity. Allocated is the space on the host that the
	// volume takes now. Both are in bytes.
	Size, Allocated int64
	Sparse          bool
	// Path is the place of the data on the host.
	Path string
	// Attachments holds at most one entry that is not foreign; see Device().
	Attachments []VolumeAttachment
	// Record is the text that the caller last stored beside the stamp.
	Record string
	// Problem describes a defect of the volume itself, such as removed data. It
	// is empty if there is no defect.
	Problem string
	// Unlinked is true if the data was removed and only the attached device still
	// has it. Detach loses it.
	Unlinked bool
}

// VolumeAttachParams describe how to attach a volume.
type VolumeAttachParams struct {
	Ref
	ReadOnly bool
}

// VolumeAttachment is a volume's block device.
type VolumeAttachment struct {
	// Device is the path, such as /dev/loop3; it may change when the host
	// restarts.
	Device   string
	ReadOnly bool
	// Foreign is true if another program attached the volume, e.g. for a backup.
	// Such a device may show only a part of the volume and disappear at any time, so
	// no machine gets it.
	Foreign bool
	// Former is true if an operator has replaced the volume's data, e.g. by those of
	// a backup, and the device still has the former data. It has the present data
	// after a Detach and an Attach.
	Former bool
}

// Device returns the volume's block device. ok is false if the source has not
// attached the volume.
func (v *Volume) Device() (a VolumeAttachment, ok bool) {
	for _, a := range v.Attachments {
		if !a.Foreign {
			return a, true
		}
	}
	return VolumeAttachment{}, false
}

// FilesystemParams describe a filesystem to create.
type FilesystemParams struct {
	Ref
	// Size is in bytes. A source that takes the size from Device ignores Size.
	Size int64
	// Type, Device and Wipe are for filesystems on a volume. Device is the
	// present path of the volume's block device.
	Type   string
	Device string
	// Wipe allows the destruction of foreign data on the device.
	Wipe bool
	// Anew is true if the operator knows that the data is lost and asked for a
	// new, empty filesystem on a device that is proven blank.
	Anew bool
	// Record is stored beside the stamp; see Recorder.
	Record string
	// Progress, if set, receives short texts about the progress.
	Progress func(message string)
}

// Filesystem is an observed filesystem.
type Filesystem struct {
	Ref
	Type string
	// Size is in bytes.
	Size int64
	// Growable is the number of bytes by which the device exceeds the
	// filesystem, if growing would gain space; 0 while not mounted.
	Growable int64
	// UUID and Label are the UUID and the label of a filesystem on a device.
	UUID, Label string
	Attachments []FilesystemAttachment
	// Held is a block device that the source keeps attached for this filesystem
	// although no caller has the filesystem's mount. Detach releases the device.
	Held string
	// Options are the options of the mount; nil while not mounted or if they
	// are not known.
	Options []string
	// Record is the text that the caller last stored beside the stamp.
	Record string
	// Problem describes a defect of the filesystem itself, or is empty.
	Problem string
	// Unlinked is true if the data was removed and only the mounts still have it.
	// Detach loses it.
	Unlinked bool
	// Unmade is true if the creation was interrupted before any data could be
	// stored. Create continues the creation.
	Unmade bool
}

// FilesystemAttachParams describe where to mount a filesystem.
type FilesystemAttachParams struct {
	Ref
	// Path is absolute; see ValidatePath.
	Path string
	// Device is the present path of the volume's block device, if the
	// filesystem is on a volume.
	Device   string
	ReadOnly bool
	// Options are mount options, one per entry.
	Options []string
}

// FilesystemAttachment is a mount of a filesystem.
type FilesystemAttachment struct {
	Path     string
	Device   string
	ReadOnly bool
	// Unrestricted is true if the mount lacks an option of mounts.Restrict, e.g.
	// because an earlier version of the agent made it. Attach adds the options
	// even while the mount is in use.
	Unrestricted bool
	// Size and Free are in bytes.
	Size, Free int64
}

// RecordParams describe the text to store beside an object's stamp.
type RecordParams struct {
	Ref
	Record string
}

// DetachParams describe an attachment to remove.
type DetachParams struct {
	Ref
	// Path is the mount point of a filesystem; empty means all mounts of the
	// filesystem. For volumes, Path is always empty.
	Path string
	// Force detaches an object that is in use. Its users keep their open files,
	// and the object is freed when the last user closes it.
	Force bool
}

// GrowParams describe the new size of an object, in bytes.
type GrowParams struct {
	Ref
	Size     int64
	Progress func(done, total int64)
}

// Space is the use of a filesystem of the host, in bytes.
type Space struct {
	Path        string
	Total, Free int64
	// Promised is the space that sparse volumes may still take.
	Promised int64
}
