// Package spec holds the declared types, the records that are kept of them and
// the statuses that the agent reports. It holds no behaviour beyond parsing,
// checking and encoding.
package spec

import "time"

// Size is a number of bytes, written e.g. as 512MiB or 1GiB.
type Size int64

// Duration is written e.g. as 90s or 5m.
type Duration time.Duration

// Declaration is the contents of a document.
type Declaration struct {
	Version     int                   `json:"version"`
	Name        string                `json:"name,omitempty"`
	Networks    map[string]Network    `json:"networks,omitempty"`
	Volumes     map[string]Volume     `json:"volumes,omitempty"`
	Filesystems map[string]Filesystem `json:"filesystems,omitempty"`
	Machines    map[string]Machine    `json:"machines,omitempty"`
}

// Network is a host network.
type Network struct {
	Bridge     string   `json:"bridge"`
	Addresses  []string `json:"addresses,omitempty"`
	MTU        int      `json:"mtu,omitempty"`
	Interfaces []string `json:"interfaces,omitempty"`
	Forwarding bool     `json:"forwarding,omitempty"`
	ProxyARP   bool     `json:"proxy-arp,omitempty"`
	NAT        bool     `json:"nat,omitempty"`
	DHCP       bool     `json:"dhcp,omitempty"`
}

// Volume is a block volume.
type Volume struct {
	Provider string `json:"provider"`
	Size     Size   `json:"size"`
	// Allocation is full (the space is reserved at once) or sparse (as data is
	// written). Empty means full.
	Allocation string `json:"allocation,omitempty"`
	// Retain is true if the data survives the removal of the declaration.
	Retain bool `json:"retain,omitempty"`
}

// The values of Volume.Allocation.
const (
	AllocationFull   = "full"
	AllocationSparse = "sparse"
)

// Filesystem is a filesystem that is made on a volume or comes from a provider.
// A filesystem on a volume has Volume and Type. One of a provider has Provider
// and Size.
type Filesystem struct {
	Volume       string   `json:"volume,omitempty"`
	Type         string   `json:"type,omitempty"`
	Provider     string   `json:"provider,omitempty"`
	Size         Size     `json:"size,omitempty"`
	MountOptions []string `json:"mount-options,omitempty"`
	// Wipe allows the destruction of other data on the volume.
	Wipe bool `json:"wipe,omitempty"`
	// Shared is true if several machines may use the filesystem.
	Shared bool `json:"shared,omitempty"`
	// Retain is true if the data survives the removal of the declaration.
	Retain bool `json:"retain,omitempty"`
}

// MountedAs returns the kernel's type of the filesystem, e.g. ext4. The provider
// rootfs keeps an ext4 filesystem in a file.
func (f Filesystem) MountedAs() string {
	switch {
	case f.Provider == "tmpfs":
		return "tmpfs"
	case f.Type != "":
		return f.Type
	}
	return "ext4"
}

// NIC connects a machine to a network.
type NIC struct {
	Network string `json:"network"`
	Address string `json:"address,omitempty"`
	// Router is true if the machine may route, advertise routers and serve DHCP.
	Router bool `json:"router,omitempty"`
}

// Attachment gives a machine a filesystem at a path or a volume as a block
// device.
type Attachment struct {
	Filesystem string `json:"filesystem,omitempty"`
	Path       string `json:"path,omitempty"`
	Volume     string `json:"volume,omitempty"`
	ReadOnly   bool   `json:"read-only,omitempty"`
}

// CloudInit is the user's part of the guest's cloud-init configuration.
type CloudInit struct {
	UserData string `json:"user-data,omitempty"`
	// OnChange decides whether changed user-data and keys reach an existing
	// machine. It is OnChangeIgnore or OnChangeRerun; empty means OnChangeIgnore.
	OnChange string `json:"on-change,omitempty"`
}

// The values of CloudInit.OnChange. With ignore, the guest stays as it is. With
// rerun, cloud-init runs the first boot again at the guest's next start.
const (
	OnChangeIgnore = "ignore"
	OnChangeRerun  = "rerun"
)

// Publish makes a guest's port reachable on the host.
type Publish struct {
	Protocol string   `json:"protocol"`
	HostPort int      `json:"host-port"`
	Port     int      `json:"port"`
	Sources  []string `json:"sources,omitempty"`
}
