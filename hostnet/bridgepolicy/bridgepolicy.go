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

// method selects how guests get onto networks.
type method string

// The methods.
const (
	// methodLocal connects guests to the hypervisor's own bridge, e.g. lxdbr0.
	methodLocal method = "local"
	// methodProvider connects guests to the host's networks.
	methodProvider method = "provider"
	// methodFan connects guests to the fan overlay.
	methodFan method = "fan"
)

// A space is the name of a network. defaultSpace is the space of guests that
// use methodLocal and name no space. unknown is the space of a device whose
// addresses lie in no known space.
const (
	defaultSpace = "default"
	unknown      = ""
)

// kind is the type of a device.
type kind string

// The kinds that affect bridging.
const (
	kindEthernet kind = "ethernet"
	kindVLAN     kind = "vlan"
	kindBond     kind = "bond"
	kindBridge   kind = "bridge"
	kindVXLAN    kind = "vxlan"
	kindLoopback kind = "loopback"
	kindOther    kind = "other"
)

// device is a network device of the host.
type device struct {
	Name string
	Kind kind
	// Parent is the underlying or enclosing device, e.g. the carrier of a VLAN,
	// the bond of a bond member or the bridge of a port.
	Parent string
	MTU    int
	// Addressed reports whether the device has an address.
	Addressed bool
	// Spaces are the networks of the device's addresses. unknown stands for an
	// address in no known network.
	Spaces []string
	// Local marks a bridge that a hypervisor creates itself.
	Local bool
	// OpenVSwitch marks an internal port of a virtual switch.
	OpenVSwitch bool
}

// need describes the networks that guests need.
type need struct {
	// Spaces are the networks that the guests name. If the guests name none, the
	// host's own spaces decide.
	Spaces []string
	Method method
	// LocalBridge is the bridge that the guests' hypervisor creates itself, for
	// methodLocal.
	LocalBridge string
}

// bridgeFor is a bridge to be created.
type bridgeFor struct {
	Device string
	Bridge string
	Space  string
}

// wanted returns the sorted spaces for the guests. These are the named spaces,
// or else the default space for methodLocal, or else the host's only known
// space. If the host is in no known space, wanted returns unknown.
func wanted(need need, devices []device) ([]string, error) {
	if len(need.Spaces) > 0 {
		return unique(need.Spaces), nil
	}
	if need.Method == methodLocal {
		return []string{defaultSpace}, nil
	}
	var known []string
	for _, d := range devices {
		if !d.Addressed || d.Kind == kindLoopback || d.Local {
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

// planBridges returns the bridges to create, in natural order of their devices.
// If a space has no device that can be bridged, it returns no bridges and an
// error that names all such spaces.
func planBridges(need need, devices []device) ([]bridgeFor, error) {
	spaces, err := wanted(need, devices)
	if err != nil {
		return nil, err
	}
	sorted := naturally(devices)
	taken := map[string]bool{}
	for _, d := range devices {
		taken[d.Name] = true
	}
	var plan []bridgeFor
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
			if slices.ContainsFunc(plan, func(b bridgeFor) bool { return b.Device == d.Name }) {
				break
			}
			plan = append(plan, bridgeFor{Device: d.Name, Bridge: freeName(d.Name, taken), Space: space})
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
	slices.SortStableFunc(plan, func(a, b bridgeFor) int { return compare(a.Device, b.Device) })
	return plan, nil
}

// served reports whether a bridge for the space exists already.
func served(method method, space string, devices []device) bool {
	if method == methodLocal && space == defaultSpace {
		return true // the hypervisor's bridge appears with the hypervisor
	}
	if space == unknown {
		return false
	}
	return slices.ContainsFunc(devices, func(d device) bool { return usable(method, d) && in(d, space) })
}

// usable reports whether the device is a bridge that guests can join.
func usable(method method, d device) bool {
	switch {
	case d.Local:
		return method == methodLocal
	case strings.HasPrefix(d.Name, "fan-"):
		return method == methodFan && d.Kind == kindBridge
	case d.OpenVSwitch:
		return method == methodProvider
	}
	return d.Kind == kindBridge
}

// candidates returns the names of the devices that may be put under a bridge,
// with or without addresses, in natural order.
func candidates(devices []device) []string {
	var names []string
	for _, d := range naturally(devices) {
		if d.Addressed = true; bridgeable(d, devices) {
			names = append(names, d.Name)
		}
	}
	return names
}

// bridgeable reports whether the device may be put under a bridge.
func bridgeable(d device, devices []device) bool {
	if !d.Addressed || d.OpenVSwitch {
		return false
	}
	switch d.Kind {
	case kindEthernet, kindBond:
		return d.Parent == ""
	case kindVLAN:
		i := slices.IndexFunc(devices, func(p device) bool { return p.Name == d.Parent })
		return i >= 0 && (devices[i].Kind == kindEthernet || devices[i].Kind == kindBond)
	}
	return false
}

func in(d device, space string) bool {
	if !d.Addressed || d.Kind == kindLoopback {
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

const maxName = 15 // the kernel's limit for a network device's name

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

// freeName returns name(), or if taken contains this name, another name that is
// a hash of the device's name. It adds the returned name to taken.
func freeName(device string, taken map[string]bool) string {
	name := name(device)
	for try := 0; taken[name]; try++ {
		sum := crc32.ChecksumIEEE(fmt.Appendf(nil, "%s/%d", device, try))
		name = fmt.Sprintf("b-%08x", sum)
	}
	taken[name] = true
	return name
}
