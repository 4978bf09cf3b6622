package client

import (
	"time"

	"hostler/agent/spec"
)

// Storage is a row of `hostler get volumes` or `filesystems`.
type Storage struct {
	Name     string            `json:"name"`
	Provider string            `json:"provider"`
	Size     int64             `json:"size"` // bytes
	Status   spec.StorageState `json:"status"`
	Device   string            `json:"device"`
	Path     string            `json:"path"`
	// Attachments are the attachments to machines, sorted by the machine's name.
	Attachments []Attachment     `json:"attachments"`
	Message     string           `json:"message"`
	Life        string           `json:"life"`
	Attempts    int              `json:"attempts"`
	NextRetry   *time.Time       `json:"next-retry"`
	ErrorKind   string           `json:"error-kind,omitempty"` // of package fault
	Declaration string           `json:"declaration"`
	UID         string           `json:"uid"`
	Observed    bool             `json:"observed"`
	Conditions  []spec.Condition `json:"conditions"`
}

// Attachment is the state of an attachment to a machine.
type Attachment struct {
	Machine  string            `json:"machine"`
	Status   spec.StorageState `json:"status"`
	Source   string            `json:"source"`
	ReadOnly bool              `json:"read-only"`
	Message  string            `json:"message"`
}

// AttachmentRow is a row of `hostler get attachments`.
type AttachmentRow struct {
	// Name is KIND/NAME@MACHINE.
	Name    string `json:"name"`
	Object  string `json:"object"` // KIND/NAME
	Machine string `json:"machine"`
	// Path is the directory or the device in the machine.
	Path string `json:"path"`
	// Source is the path on the host that the machine gets. It is empty unless the
	// storage worker offers the storage.
	Source    string            `json:"source"`
	ReadOnly  bool              `json:"read-only"`
	Status    spec.StorageState `json:"status"`
	Message   string            `json:"message"`
	Attempts  int               `json:"attempts"`
	NextRetry *time.Time        `json:"next-retry"`
}

// BlockDevice is a row of `hostler get block-devices`.
type BlockDevice struct {
	Name string `json:"name"`
	Path string `json:"path"`
	// Preferred is a path that stays the same across boots, e.g. in
	// /dev/disk/by-id, if the device has one.
	Preferred string   `json:"preferred"`
	Type      string   `json:"type"` // disk part loop md lvm crypt dm
	Size      int64    `json:"size"` // bytes
	ReadOnly  bool     `json:"read-only"`
	InUse     bool     `json:"in-use"`
	Content   string   `json:"content"` // description of the contents; empty if unknown
	UUID      string   `json:"uuid"`
	Label     string   `json:"label"`
	WWN       string   `json:"wwn"`
	Serial    string   `json:"serial"`
	Links     []string `json:"links"`
	Mounts    []string `json:"mounts"`
	// Backing is the file behind a loop device.
	Backing string `json:"backing"`
}

// ResizeRequest is the new size of a volume, e.g. 2GiB.
type ResizeRequest struct {
	Size string `json:"size" maxLength:"64"`
}

// Network is a row of `hostler get networks`.
type Network struct {
	Name      string   `json:"name"`
	Bridge    string   `json:"bridge"`
	Addresses []string `json:"addresses"`
	Status    string   `json:"status"` // pending ready error dying
	Message   string   `json:"message"`
	// Guests are the assigned addresses, by MACHINE/NIC.
	Guests      map[string][]string `json:"guests"`
	Life        string              `json:"life"`
	Attempts    int                 `json:"attempts"`
	NextRetry   *time.Time          `json:"next-retry"`
	ErrorKind   string              `json:"error-kind,omitempty"`
	Declaration string              `json:"declaration"`
	UID         string              `json:"uid"`
	Observed    bool                `json:"observed"`
	Conditions  []spec.Condition    `json:"conditions"`
}
