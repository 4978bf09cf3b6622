// Package bridgepolicy decides which of the host's devices have to be put
// under a bridge for what the guests need, and which bridges a guest's NICs
// join. It touches nothing.
package bridgepolicy

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// Method says how guests get onto networks.
type Method string

// The methods.
const (
	// Local lets guests use the hypervisor's own bridge.
	Local Method = "local"
	// Provider puts guests onto the host's networks.
	Provider Method = "provider"
	// Fan puts guests onto the fan overlay.
	Fan Method = "fan"
)

// DefaultSpace is the network that guests get by the method Local when they
// name none; Unknown is that of a device whose addresses lie in no known one.
const (
	DefaultSpace = "default"
	Unknown      = ""
)

// Kind is what a device is.
type Kind string

// The kinds of devices that matter here.
const (
	Ethernet Kind = "ethernet"
	VLAN     Kind = "vlan"
	Bond     Kind = "bond"
	Bridge   Kind = "bridge"
	VXLAN    Kind = "vxlan"
	Loopback Kind = "loopback"
	Other    Kind = "other"
)

// Device is one of the host's network devices.
type Device struct {
	Name string
	Kind Kind
	// Parent is what the device stands on or belongs to: of a vlan its
	// carrier, of a bond's member the bond, of a port its bridge.
	Parent string
	MAC    string
	MTU    int
	// Addressed says that the device has an address.
	Addressed bool
	// Spaces are the networks in which its addresses lie, Unknown among them
	// for an address in no known one.
	Spaces []string
	// OpenVSwitch marks an internal port of a virtual switch.
	OpenVSwitch bool
}

// Need is what guests need of the host.
type Need struct {
	// Spaces that the guests name; empty lets the host's own decide.
	Spaces []string
	Method Method
}

// BridgeFor is one bridge to be made.
type BridgeFor struct {
	Device string
	Bridge string
	Space  string
}

// LocalBridges are the hypervisors' own bridges, by container type.
var localBridges = map[string]string{"lxd": "lxdbr0", "kvm": "virbr0", "lxc": "lxcbr0"}

// LocalBridge is the bridge that a container type's hypervisor makes itself;
// "" for an unknown type.
func LocalBridge(containerType string) string { return localBridges[containerType] }

// Wanted returns the spaces that guests are to be in, sorted: those named, or
// by the method Local the default one, or the only one that the host is in. A
// host in no known space gives Unknown.
func Wanted(need Need, devices []Device) ([]string, error) {
	if len(need.Spaces) > 0 {
		return unique(need.Spaces), nil
	}
	if need.Method == Local {
		return []string{DefaultSpace}, nil
	}
	var known []string
	for _, d := range devices {
		if !d.Addressed || d.Kind == Loopback || isLocal(d.Name) {
			continue
		}
		for _, s := range d.Spaces {
			if s != Unknown {
				known = append(known, s)
			}
		}
	}
	known = unique(known)
	switch len(known) {
	case 0:
		return []string{Unknown}, nil
	case 1:
		return known, nil
	}
	return nil, fault.New(fault.Invalid, "cannot choose a network for the guests: no obvious space, the host is in %s", strings.Join(known, ", "))
}

// Plan returns the bridges to be made, in natural order of their devices. A
// space without a device that can be bridged is an error that names all such,
// and then nothing is to be made.
func Plan(need Need, devices []Device) ([]BridgeFor, error) {
	spaces, err := Wanted(need, devices)
	if err != nil {
		return nil, err
	}
	sorted := naturally(devices)
	taken := map[string]bool{}
	for _, d := range devices {
		taken[d.Name] = true
	}
	var plan []BridgeFor
	var without []string
	for _, space := range spaces {
		if served(need.Method, space, devices) {
			continue
		}
		found := false
		for _, d := range sorted {
			if !in(d, space) || !bridgeable(d, devices) {
				continue
			}
			found = true
			// One bridge serves every space that its device is in.
			if slices.ContainsFunc(plan, func(b BridgeFor) bool { return b.Device == d.Name }) {
				break
			}
			plan = append(plan, BridgeFor{Device: d.Name, Bridge: freeName(d.Name, taken), Space: space})
			if space != Unknown {
				break
			}
		}
		if !found {
			without = append(without, spaceName(space))
		}
	}
	if len(without) > 0 {
		return nil, fault.New(fault.NotReady, "cannot bridge: the host has no device to bridge for %s", strings.Join(without, ", "))
	}
	slices.SortStableFunc(plan, func(a, b BridgeFor) int { return Compare(a.Device, b.Device) })
	return plan, nil
}

// served says that a bridge for the space is there already.
func served(method Method, space string, devices []Device) bool {
	if method == Local && space == DefaultSpace {
		return true // the hypervisor's bridge, there once the hypervisor is
	}
	if space == Unknown {
		return false
	}
	return slices.ContainsFunc(devices, func(d Device) bool { return usable(method, d) && in(d, space) })
}

// usable says that guests can join the device as a bridge.
func usable(method Method, d Device) bool {
	switch {
	case isLocal(d.Name):
		return method == Local
	case strings.HasPrefix(d.Name, "fan-"):
		return method == Fan && d.Kind == Bridge
	case d.OpenVSwitch:
		return method == Provider
	}
	return d.Kind == Bridge
}

// Candidates are the names of the devices that may be put under a bridge,
// with addresses or without, in natural order.
func Candidates(devices []Device) []string {
	var names []string
	for _, d := range naturally(devices) {
		if d.Addressed = true; bridgeable(d, devices) {
			names = append(names, d.Name)
		}
	}
	return names
}

// bridgeable says that the device may be put under a bridge.
func bridgeable(d Device, devices []Device) bool {
	if !d.Addressed || d.OpenVSwitch {
		return false
	}
	switch d.Kind {
	case Ethernet, Bond:
		return d.Parent == ""
	case VLAN:
		i := slices.IndexFunc(devices, func(p Device) bool { return p.Name == d.Parent })
		return i >= 0 && (devices[i].Kind == Ethernet || devices[i].Kind == Bond)
	}
	return false
}

func in(d Device, space string) bool {
	if !d.Addressed || d.Kind == Loopback {
		return false
	}
	return slices.Contains(d.Spaces, space) || space == Unknown && len(d.Spaces) == 0
}

func isLocal(name string) bool {
	for _, bridge := range localBridges {
		if name == bridge {
			return true
		}
	}
	return false
}

func spaceName(space string) string {
	if space == Unknown {
		return "the unknown network"
	}
	return space
}

func unique(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

const maxName = 15 // of a network device

// Name is the bridge's name for a device. It has at most 15 characters.
func Name(device string) string {
	name := strings.ReplaceAll(device, ".", "-")
	switch {
	case len(name) < 13:
		return "br-" + name
	case len(name) == 13:
		return "b-" + name
	case strings.HasPrefix(name, "en") && len(name)-2 <= maxName-2:
		return "b-" + name[2:]
	}
	return fmt.Sprintf("b-%06x-%s", crc32.ChecksumIEEE([]byte(device))&0xffffff, name[len(name)-6:])
}

// freeName is Name, or where that is taken another that the device's name
// alone decides.
func freeName(device string, taken map[string]bool) string {
	name := Name(device)
	for try := 0; taken[name]; try++ {
		sum := crc32.ChecksumIEEE(fmt.Appendf(nil, "%s/%d", device, try))
		name = fmt.Sprintf("b-%08x", sum)
	}
	taken[name] = true
	return name
}
