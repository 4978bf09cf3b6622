package spec

// VolumeRecord is the spec half of a volume object.
type VolumeRecord struct {
	Header
	Volume Volume `json:"volume"`
	// Restored is true if the record was restored from a stamp, so data exists.
	Restored bool `json:"restored,omitempty"`
}

// FilesystemRecord is the spec half of a filesystem object.
type FilesystemRecord struct {
	Header
	Filesystem Filesystem `json:"filesystem"`
	// Restored is true if the record was restored from a stamp, so data exists.
	Restored bool `json:"restored,omitempty"`
}

// StorageState is the state of a volume, a filesystem or an attachment.
type StorageState string

// The storage states.
const (
	StoragePending    StorageState = "pending"
	StorageCreating   StorageState = "creating"
	StorageAttaching  StorageState = "attaching"
	StorageAttached   StorageState = "attached"
	StorageDetaching  StorageState = "detaching"
	StorageDetached   StorageState = "detached"
	StorageDestroying StorageState = "destroying"
	StorageError      StorageState = "error"
)

// StorageStatus is the status half of a volume or filesystem object.
type StorageStatus struct {
	State   StorageState `json:"state"`
	Message string       `json:"message,omitempty"`
	// Created is true if the volume or filesystem exists on the host.
	Created bool `json:"created,omitempty"`
	// StampUID is the uid in the stamp on the host if it differs from the object's
	// uid. It differs if data of an earlier declaration was taken over.
	StampUID string `json:"stamp-uid,omitempty"`
	// Size is the observed size in bytes.
	Size int64 `json:"size,omitempty"`
	// Device is the host's block device of a volume. Path is the host's mount
	// point of a filesystem. They are set only while the object is attached to the
	// host.
	Device string `json:"device,omitempty"`
	Path   string `json:"path,omitempty"`
	// Attachments holds the attachments to machines, by the machine's name.
	Attachments        map[string]AttachmentStatus `json:"attachments,omitempty"`
	Conditions         []Condition                 `json:"conditions,omitempty"`
	Attempts           Attempts                    `json:"retry,omitzero"`
	Others             map[string]StorageFailure   `json:"other-failures,omitempty"`
	ObservedGeneration int64                       `json:"observed-generation,omitempty"`
	// RetriesDone is the RetryRequest of the record of that generation.
	RetriesDone int `json:"retries-done,omitempty"`
}
