package spec

import "time"

// InstanceInfo links a machine to its instance. It is written once per
// instance, where none is recorded; only the removal of the instance clears it.
type InstanceInfo struct {
	Name  string `json:"name"`
	Token string `json:"token"`
	// Image is the reference that the instance was created from, ImageID the
	// hypervisor's id.
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
	// RootUnlimited: the pool does not enforce the requested size of the root
	// disk.
	RootUnlimited bool   `json:"root-unlimited,omitempty"`
	VirtType      string `json:"virt-type,omitempty"`
}

// Port is the host's end of an instance's network interface, and the bridge
// that it belongs to.
type Port struct {
	Device string `json:"device"`
	Bridge string `json:"bridge"`
}
