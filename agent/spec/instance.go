package spec

import "time"

// InstanceInfo links a machine to its instance. It is written once per
// instance, if the machine has none recorded. It is cleared only when the
// instance is removed.
type InstanceInfo struct {
	Name  string `json:"name"`
	Token string `json:"token"`
	// Image is the reference of the image that the instance was created from, and
	// ImageID is the hypervisor's id of that image.
	Image   string    `json:"image,omitempty"`
	ImageID string    `json:"image-id,omitempty"`
	Created time.Time `json:"created"`
}

// Hardware is the observed hardware of an instance. Memory and RootDisk are in
// bytes.
type Hardware struct {
	Arch     string `json:"arch,omitempty"`
	CPUs     int    `json:"cpus,omitempty"`
	Memory   int64  `json:"memory,omitempty"`
	RootDisk int64  `json:"root-disk,omitempty"`
	// RootUnlimited is true if the pool does not enforce the requested size of the
	// root disk.
	RootUnlimited bool   `json:"root-unlimited,omitempty"`
	VirtType      string `json:"virt-type,omitempty"`
}

// Port is the host's end of an instance's network interface. Bridge is the
// bridge that this end belongs to.
type Port struct {
	Device string `json:"device"`
	Bridge string `json:"bridge"`
}
