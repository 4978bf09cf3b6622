package spec

import "time"

// InstanceInfo ties a machine to its instance. It is written once per
// instance: only its absence may be overwritten, and only the removal of the
// instance clears it.
type InstanceInfo struct {
	Name  string `json:"name"`
	Token string `json:"token"`
	// Image is the reference it was made from, ImageID the hypervisor's id.
	Image   string    `json:"image,omitempty"`
	ImageID string    `json:"image-id,omitempty"`
	Created time.Time `json:"created"`
}

// Hardware is what an instance was really given. Memory and RootDisk in bytes.
type Hardware struct {
	Arch     string `json:"arch,omitempty"`
	CPUs     int    `json:"cpus,omitempty"`
	Memory   int64  `json:"memory,omitempty"`
	RootDisk int64  `json:"root-disk,omitempty"`
	// RootUnlimited: a root disk was asked for whose size the pool does not limit.
	RootUnlimited bool   `json:"root-unlimited,omitempty"`
	VirtType      string `json:"virt-type,omitempty"`
}

// Port is a network device of the host that leads to an instance, and the
// bridge that it belongs under.
type Port struct {
	Device string `json:"device"`
	Bridge string `json:"bridge"`
}
