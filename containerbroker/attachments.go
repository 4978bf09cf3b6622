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

// NIC connects an instance to a bridge of the host.
type NIC struct {
	// Name is the interface's name in the guest, e.g. eth0.
	Name string
	// Bridge is the host's bridge. MAC is the interface's fixed MAC address.
	Bridge, MAC string
	// MTU is in bytes; 0 means the bridge's MTU.
	MTU int
	// Addresses have prefix lengths, e.g. 192.0.2.2/24. The guest is not
	// allowed to send from other addresses, unless Router is true.
	Addresses []string
	// Static is true if the guest configures Addresses, Gateways and
	// Nameservers itself. Otherwise it gets the same values from the bridge's
	// DHCP server.
	Static                bool
	Gateways, Nameservers []string
	// AcceptRA is true if a static guest also takes IPv6 addresses and routes
	// from router advertisements.
	AcceptRA bool
	// Router is true if the guest is allowed to send from addresses other than
	// Addresses.
	Router bool
}

// PortPrefix begins the names that PortOf returns.
const PortPrefix = "hn"

// PortOf returns the name of the host's end of the interface with this MAC
// address, for drivers that choose that name. The host's firewall recognises
// the sender of a frame by this name. Example: 00:16:3e:01:02:03 becomes
// hn00163e010203.
func PortOf(mac string) string {
	return PortPrefix + strings.ReplaceAll(strings.ToLower(mac), ":", "") // 14 of the 15 characters that the kernel allows
}

// Disk is a directory or block device of the host that an instance gets. A
// driver attaches it unchanged. If the guest's user ids differ from the host's,
// the caller has already made Source a mapped mount. If ReadOnly is true, the
// caller has already made a block device refuse writes.
type Disk struct {
	// Name is the device's name, unique in the instance.
	Name string
	// Source is the path of a directory or a block device of the host.
	Source string
	// Path is the directory's mount point in the guest. If Path is empty,
	// Source is a block device, which the guest sees as Device, e.g.
	// /dev/hostler-data.
	Path, Device string
	// Size is the size of a block device in bytes, for hypervisors that must
	// announce a new size to a running guest; 0 if it is not known.
	Size     int64
	ReadOnly bool
}

// bridgeName matches the interface names that the kernel accepts, without
// characters that are special elsewhere.
var bridgeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$`)

// diskName matches names that are safe in a file name, a device name and a log.
var diskName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// check refuses a malformed bridge name or MAC address. Package cloudinit checks
// the rest, such as Addresses, when it writes the network-config.
func (n NIC) check() error {
	if !bridgeName.MatchString(n.Bridge) {
		return fault.New(fault.Invalid, "interface %q: %q cannot be a bridge", n.Name, n.Bridge)
	}
	if mac, err := net.ParseMAC(n.MAC); n.MAC != "" && (err != nil || len(mac) != 6 || mac[0]&1 != 0) {
		return fault.New(fault.Invalid, "interface %q: %q cannot be its MAC address", n.Name, n.MAC)
	}
	return nil
}

// String describes the interface for the user.
func (n NIC) String() string {
	words := []string{"bridge " + n.Bridge}
	if n.MAC != "" {
		words = append(words, "mac "+strings.ToLower(n.MAC))
	}
	words = append(words, Hosts(n.Addresses)...)
	if n.MTU != 0 {
		words = append(words, fmt.Sprint("mtu ", n.MTU))
	}
	return strings.Join(words, ", ")
}

// fixedOf returns the bridge in an interface's description, or "", and the words that
// say its MTU and its name in the guest. A driver's remark may follow the words, e.g.
// " (not made by hostler)".
func fixedOf(text string) (bridge string, words []string) {
	text, _, _ = strings.Cut(text, " (")
	for word := range strings.SplitSeq(text, ", ") {
		switch {
		case strings.HasPrefix(word, "bridge "):
			bridge = word
		case strings.HasPrefix(word, "mtu "), strings.HasPrefix(word, "name "):
			words = append(words, word)
		}
	}
	return bridge, words
}

// Hosts returns addresses without their prefix lengths.
func Hosts(addresses []string) []string {
	var all []string
	for _, a := range addresses {
		host, _, _ := strings.Cut(a, "/")
		all = append(all, host)
	}
	return all
}

func (n NIC) guestSide() cloudinit.Interface {
	return cloudinit.Interface{
		Name: n.Name, MTU: n.MTU, Addresses: n.Addresses,
		Static: n.Static, AcceptRA: n.AcceptRA, Gateways: n.Gateways, Nameservers: n.Nameservers,
	}
}

// check refuses a disk with a malformed name, source, path or device.
func (d Disk) check() error {
	absolute := func(p string) bool {
		return path.IsAbs(p) && path.Clean(p) == p && p != "/" && !strings.ContainsAny(p, "\x00\n")
	}
	switch {
	case !diskName.MatchString(d.Name):
		return fault.New(fault.Invalid, "%q cannot be the name of a disk", d.Name)
	case !absolute(d.Source):
		return fault.New(fault.Invalid, "disk %q: its source %q is not a full path", d.Name, d.Source)
	case (d.Path == "") == (d.Device == ""):
		return fault.New(fault.Invalid, "disk %q: it needs either a path or a device name in the guest", d.Name)
	case d.Path != "" && !absolute(d.Path):
		return fault.New(fault.Invalid, "disk %q: its path %q is not a full path", d.Name, d.Path)
	case d.Device != "" && (!absolute(d.Device) || !strings.HasPrefix(d.Device, "/dev/")):
		return fault.New(fault.Invalid, "disk %q: its device %q is not below /dev", d.Name, d.Device)
	}
	return nil
}

// String describes the disk for the user.
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
