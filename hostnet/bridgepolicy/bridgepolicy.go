// Package bridgepolicy decides which of the host's devices must be put under a
// bridge to give the guests their networks, and which bridges a guest's NICs
// join. It only decides; it changes nothing.
package bridgepolicy

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// Method selects how guests get onto networks.
type Method string

// The methods.
const (
	// Local connects guests to the hypervisor's own bridge, e.g. lxdbr0.
	Local Method = "local"
	// Provider connects guests to the host's networks.
	Provider Method = "provider"
	// Fan connects guests to the fan overlay.
	Fan Method = "fan"
)

// defaultSpace is the network of guests that use the method Local and name no
// space. Unknown is the network of a device whose addresses lie in no known
// space.
const (
	defaultSpace = "default"
	unknown      = ""
)

// Kind is the type of a device.
type Kind string

// The kinds that affect bridging.
const (
	Ethernet Kind = "ethernet"
	VLAN     Kind = "vlan"
	Bond     Kind = "bond"
	Bridge   Kind = "bridge"
	VXLAN    Kind = "vxlan"
	Loopback Kind = "loopback"
	Other    Kind = "other"
)

// Device is a network device of the host.
type Device struct {
	Name string
	Kind Kind
	// Parent is the underlying or enclosing device: a vlan's carrier, the bond
	// of a bond member, the bridge of a port.
	Parent string
	MAC    string
	MTU    int
	// Addressed reports whether the device has an address.
	Addressed bool
	// Spaces are the networks of its addresses; Unknown stands for an address in
	// no known network.
	Spaces []string
	// Local marks a bridge that a hypervisor creates itself.
	Local bool
	// OpenVSwitch marks an internal port of a virtual switch.
	OpenVSwitch bool
}

// Need describes the networks that guests need.
type Need struct {
	// Spaces are named by the guests; if empty, the host's own spaces decide.
	Spaces []string
	Method Method
	// LocalBridge is the bridge that the guests' hypervisor creates itself, for
	// the method Local.
	LocalBridge string
}

// BridgeFor is a bridge to be created.
type BridgeFor struct {
	Device string
	Bridge string
	Space  string
}

// wanted returns the spaces for the guests, sorted: the named spaces, the
// default space for the method Local, or else the host's only known space. If
// the host is in no known space, Wanted returns Unknown.
func wanted(need Need, devices []Device) ([]string, error) {
	if len(need.Spaces) > 0 {
		return unique(need.Spaces), nil
	}
	if need.Method == Local {
		return []string{defaultSpace}, nil
	}
	var known []string
	for _, d := range devices {
		if !d.Addressed || d.Kind == Loopback || d.Local {
			continue
		}
		for _, s := range d.Spaces {
			if s != unknown {
				known = append(known, s)
			}
		}
	}
	known = unique(known)
	switch len(known) {
	case 0:
		return []string{unknown}, nil
	case 1:
		return known, nil
	}
	return nil, fault.New(fault.Invalid, "cannot choose a network for the guests: no obvious space, the host is in %s", strings.Join(known, ", "))
}

// Plan returns the bridges to create, in natural order of their devices. If a
// space has no device that can be bridged, Plan returns no bridges and an error
// that names all such spaces.
func Plan(need Need, devices []Device) ([]BridgeFor, error) {
	spaces, err := wanted(need, devices)
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
			// One bridge serves all spaces of its device.
			if slices.ContainsFunc(plan, func(b BridgeFor) bool { return b.Device == d.Name }) {
				break
			}
			plan = append(plan, BridgeFor{Device: d.Name, Bridge: freeName(d.Name, taken), Space: space})
			if space != unknown {
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
	slices.SortStableFunc(plan, func(a, b BridgeFor) int { return compare(a.Device, b.Device) })
	return plan, nil
}

// served reports whether a bridge for the space exists already.
func served(method Method, space string, devices []Device) bool {
	if method == Local && space == defaultSpace {
		return true // the hypervisor's bridge appears with the hypervisor
	}
	if space == unknown {
		return false
	}
	return slices.ContainsFunc(devices, func(d Device) bool { return usable(method, d) && in(d, space) })
}

// usable reports whether guests can join the device as a bridge.
func usable(method Method, d Device) bool {
	switch {
	case d.Local:
		return method == Local
	case strings.HasPrefix(d.Name, "fan-"):
		return method == Fan && d.Kind == Bridge
	case d.OpenVSwitch:
		return method == Provider
	}
	return d.Kind == Bridge
}

// Candidates returns the names of the devices that may be put under a bridge,
// with or without addresses, in natural order.
func Candidates(devices []Device) []string {
	var names []string
	for _, d := range naturally(devices) {
		if d.Addressed = true; bridgeable(d, devices) {
			names = append(names, d.Name)
		}
	}
	return names
}

// bridgeable reports whether the device may be put under a bridge.
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
	return slices.Contains(d.Spaces, space) || space == unknown && len(d.Spaces) == 0
}

func spaceName(space string) string {
	if space == unknown {
		return "the unknown network"
	}
	return space
}

func unique(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

const maxName = 15 // of a network device name

// name returns the name of the bridge for a device, e.g. br-en0 for en0. It has
// at most 15 characters.
func name(device string) string {
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

// freeName returns Name, or if that is taken, another name that depends only on
// the device's name.
func freeName(device string, taken map[string]bool) string {
	name := name(device)
	for try := 0; taken[name]; try++ {
		sum := crc32.ChecksumIEEE(fmt.Appendf(nil, "%s/%d", device, try))
		name = fmt.Sprintf("b-%08x", sum)
	}
	taken[name] = true
	return name
}
