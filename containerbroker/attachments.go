package containerbroker

import (
	"fmt"
	"net"
	"path"
	"regexp"
	"strings"

	"hostler/containerbroker/cloudinit"
	"hostler/internal/fault"
)

// NIC joins an instance to a bridge of the host.
type NIC struct {
	// Name is the interface's name inside, like eth0.
	Name string
	// Bridge is the host's bridge, MAC the interface's fixed address.
	Bridge, MAC string
	// MTU in bytes; 0: the bridge's.
	MTU int
	// Addresses with their prefix lengths; the guest may send from no other.
	Addresses []string
	// Static has the guest configure Addresses, Gateways and Nameservers by
	// itself; otherwise it asks the bridge's DHCP, which gives it the same.
	Static                bool
	Gateways, Nameservers []string
}

// PortOf is the name of the host's end of the interface with the MAC address,
// where the driver itself chooses it: by it the host's firewall knows whose
// frames come in.
func PortOf(mac string) string {
	return "hn" + strings.ReplaceAll(strings.ToLower(mac), ":", "") // of the 15 characters that a device's name may have
}

// Disk is a folder or block device of the host that an instance is given. A
// driver passes it on as it is: where the guest's user ids are not the host's,
// Source is already a mount that maps them, and a block device that is not to
// be written is itself read-only.
type Disk struct {
	// Name is the device's name, unique in the instance.
	Name string
	// Source is a path of the host: a folder, or a block device.
	Source string
	// Path is where the guest finds the folder; empty: Source is given as a
	// block device named Device.
	Path, Device string
	// Size is that of a block device in bytes, which a running guest may have to
	// be told; 0: not known.
	Size     int64
	ReadOnly bool
}

// bridgeName is what the kernel takes for an interface, without what would
// mean something elsewhere.
var bridgeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$`)

// diskName keeps a disk's name fit for a file, a device and a log.
var diskName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// check refuses an interface that no hypervisor can be given; what the guest
// is told of it is checked where that is written.
func (n NIC) check() error {
	if !bridgeName.MatchString(n.Bridge) {
		return fault.New(fault.Invalid, "interface %q: %q cannot be a bridge", n.Name, n.Bridge)
	}
	if mac, err := net.ParseMAC(n.MAC); n.MAC != "" && (err != nil || len(mac) != 6 || mac[0]&1 != 0) {
		return fault.New(fault.Invalid, "interface %q: %q cannot be its MAC address", n.Name, n.MAC)
	}
	return nil
}

// String describes the interface for a person.
func (n NIC) String() string {
	words := []string{"bridge " + n.Bridge}
	if n.MAC != "" {
		words = append(words, "mac "+strings.ToLower(n.MAC))
	}
	for _, a := range n.Addresses {
		words = append(words, strings.SplitN(a, "/", 2)[0])
	}
	if n.MTU != 0 {
		words = append(words, fmt.Sprint("mtu ", n.MTU))
	}
	return strings.Join(words, ", ")
}

func (n NIC) guestSide() cloudinit.Interface {
	return cloudinit.Interface{
		Name: n.Name, MTU: n.MTU, Addresses: n.Addresses,
		Static: n.Static, Gateways: n.Gateways, Nameservers: n.Nameservers,
	}
}

// check refuses a disk that no hypervisor can be given.
func (d Disk) check() error {
	absolute := func(p string) bool {
		return path.IsAbs(p) && path.Clean(p) == p && p != "/" && !strings.ContainsAny(p, "\x00\n")
	}
	switch {
	case !diskName.MatchString(d.Name):
		return fault.New(fault.Invalid, "%q cannot be the name of a disk", d.Name)
	case !absolute(d.Source):
		return fault.New(fault.Invalid, "disk %q: its source %q is not the full path of something", d.Name, d.Source)
	case (d.Path == "") == (d.Device == ""):
		return fault.New(fault.Invalid, "disk %q: it needs either a path or a device name in the guest", d.Name)
	case d.Path != "" && !absolute(d.Path):
		return fault.New(fault.Invalid, "disk %q: its path %q is not the full path of a folder", d.Name, d.Path)
	case d.Device != "" && (!absolute(d.Device) || !strings.HasPrefix(d.Device, "/dev/")):
		return fault.New(fault.Invalid, "disk %q: its device %q is not below /dev", d.Name, d.Device)
	}
	return nil
}

// String describes the disk for a person.
func (d Disk) String() string {
	text := d.Source + " at " + d.Path
	if d.Path == "" {
		text = d.Source + " as " + d.Device
	}
	if d.ReadOnly {
		text += ", read-only"
	}
	return text
}
