package lxd

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/containerbroker/guestprobe"
	"hostler/internal/fault"
)

const (
	keyParent     = "parent"
	keyHWAddr     = "hwaddr"
	keyMTU        = "mtu"
	keyFilterMAC  = "security.mac_filtering"
	keyFilterIPv4 = "security.ipv4_filtering"
	keyFilterIPv6 = "security.ipv6_filtering"
	keyIPv4       = "ipv4.address"
	keyIPv6       = "ipv6.address"
	keyHostName   = "host_name"
	// keySix records the IPv6 addresses that hostler gave to the guest. LXD
	// ignores the key.
	keySix = "user.hostler.ipv6"
)

// nicKeys are the keys of an interface that hostler writes, and the keys that
// would conflict with them. All other keys (limits, priorities) belong to the
// administrator.
var nicKeys = []string{
	"type", "nictype", "network", "name", keyParent, keyHWAddr, keyMTU,
	keyFilterMAC, keyFilterIPv4, keyFilterIPv6, keyIPv4, keyIPv6, keyHostName, keySix,
}

// checkNames returns an error, clearer than LXD's, for names that LXD would
// refuse.
func checkNames(m containerbroker.Machine) error {
	taken := map[string]bool{rootName: true}
	for _, n := range m.NICs {
		if len(n.Name) < 2 {
			return fault.New(fault.Invalid, "interface %q: the name must have two characters or more", n.Name)
		}
		if taken[n.Name] {
			return fault.New(fault.Invalid, "interface %q: the name is taken by another device", n.Name)
		}
		taken[n.Name] = true
	}
	for _, disk := range m.Disks {
		if taken[deviceName(disk.Name)] {
			return fault.New(fault.Invalid, "disk %q: the name is taken by another device", disk.Name)
		}
		taken[deviceName(disk.Name)] = true
	}
	return nil
}

// nicDevice returns the device of an interface. The host's firewall filters the
// guest's packets at the host's end of the interface, which is named after the
// MAC address. LXD's filters also act, from the first frame on. They permit
// only the guest's MAC address and its IPv4 address, or no IPv4 if it has only
// IPv6 addresses. LXD 5.0 accepts only one IPv4 address on a bridge that it
// does not manage, so the IPv4 packets of a guest with several are filtered by
// the firewall alone. LXD's IPv6 filters do not work on every host and are not
// used.
func nicDevice(n containerbroker.NIC) map[string]string {
	device := map[string]string{
		"type": "nic", "nictype": "bridged", "name": n.Name, keyParent: n.Bridge, keyFilterMAC: "true",
	}
	if n.MAC != "" {
		device[keyHWAddr], device[keyHostName] = strings.ToLower(n.MAC), containerbroker.PortOf(n.MAC)
	}
	if n.MTU != 0 {
		device[keyMTU] = number(int64(n.MTU))
	}
	if len(n.Addresses) == 0 {
		return device
	}
	v4, v6 := guestprobe.ByFamily(n.Addresses)
	device[keySix] = cmp.Or(strings.Join(v6, " "), "none")
	switch {
	case n.Router: // a router sends from addresses of other hosts, so IPv4 is not filtered
	case len(v4) == 0:
		device[keyFilterIPv4], device[keyIPv4] = "true", "none"
	case len(v4) == 1:
		device[keyFilterIPv4], device[keyIPv4] = "true", v4[0]
	}
	return device
}

// keepPlugged prevents LXD from replugging a running guest's interface, which
// would interrupt its network, only because an earlier version did not yet
// write keyHostName and keySix. It removes both keys from want, unless the
// interface must be replugged for another reason. A stopped instance gets the
// keys, because the firewall learns a name chosen by LXD only after the
// instance's start.
func keepPlugged(have, want map[string]string) map[string]string {
	same := func(key string) bool { return have[key] == want[key] }
	if have[keyOwner] != "" && have[keyHostName] == "" && same(keyParent) && same(keyHWAddr) && same(keyMTU) {
		delete(want, keyHostName)
		delete(want, keySix)
	}
	return want
}

// sixOf returns the IPv6 addresses that hostler gave to a device, or "" if an
// earlier version made the device and did not record them.
func sixOf(device map[string]string) string { return cmp.Or(device[keySix], device[keyIPv6]) }

// nicText describes the interface of a device. It omits the values that
// nicDevice() always writes, and includes every other value to compare.
func nicText(name string, device map[string]string) string {
	if device["type"] == mask {
		return "masked"
	}
	var words []string
	say := func(word, key string) {
		if device[key] != "" && device[key] != "none" {
			words = append(words, strings.TrimSpace(word+" "+device[key]))
		}
	}
	say("bridge", keyParent)
	say("network", "network")
	say("mac", keyHWAddr)
	say("", keyIPv4)
	say("", keySix)
	say("mtu", keyMTU)
	if kind := device["nictype"]; kind != "bridged" && (kind != "" || device["network"] == "") {
		words = append(words, "type "+strconv.Quote(kind))
	}
	if inside := device["name"]; inside != name {
		words = append(words, "name "+inside)
	}
	if port := device[keyHostName]; port != "" && port != containerbroker.PortOf(device[keyHWAddr]) {
		words = append(words, "host's end "+strconv.Quote(port))
	}
	if isTrue(device[keyFilterIPv6]) {
		words = append(words, "IPv6 filtered by the hypervisor")
	}
	for _, f := range []struct{ name, key, address string }{{"MAC address", keyFilterMAC, ""}, {"IPv4", keyFilterIPv4, keyIPv4}} {
		switch {
		case !isTrue(device[f.key]):
			words = append(words, f.name+" not filtered by the hypervisor")
		case device[f.address] == "none":
			words = append(words, "no "+f.name)
		}
	}
	return strings.Join(words, ", ")
}

// nicTexts describes the interfaces of a machine and of its instance, by name.
// It leaves out the instance's own devices that hostler did not make, unless
// they have a declared name. It includes interfaces from profiles only if the
// machine declares any interface.
func nicTexts(m containerbroker.Machine, have raw, stopped bool) (wanted, found map[string]string) {
	wanted, found = map[string]string{}, map[string]string{}
	six := map[string]string{}
	for _, n := range m.NICs {
		device := nicDevice(n)
		wanted[n.Name], six[n.Name] = nicText(n.Name, device), device[keySix]
	}
	for name, device := range have.own {
		if device[keySix] == "" && six[name] != "" && device[keyOwner] != "" {
			device = maps.Clone(device)
			device[keySix] = cmp.Or(device[keyIPv6], six[name])
		}
		_, declared := wanted[name]
		switch {
		case device["type"] == mask && len(m.NICs) > 0: // the guest has no interface of that name
		case device[keyOwner] != "" && (device["type"] == "nic" || device["type"] == mask):
			found[name] = nicText(name, device)
			if declared && stopped && device["type"] == "nic" && device[keyHWAddr] != "" && device[keyHostName] == "" {
				found[name] += ", host's end without a name of its own"
			}
		case declared:
			found[name] = nicText(name, device) + " (not made by hostler)"
		}
	}
	if len(m.NICs) > 0 {
		profiled := maps.Clone(have.fromProfiles)
		maps.DeleteFunc(profiled, func(_ string, device map[string]string) bool { return device["type"] != "nic" })
		for name, device := range profiled {
			found[name] = nicText(name, device) + " (of a profile)"
		}
	}
	return wanted, found
}

// portsOf returns the host's ends of the instance's interfaces that hostler
// made. LXD records the names of these ends while the instance runs, but does
// not reattach an end that has left its bridge.
func portsOf(f api.InstanceFull) map[string]containerbroker.Port {
	var ports map[string]containerbroker.Port
	for name, device := range ownDevices(f.Config, f.Devices) {
		at := f.Config["volatile."+name+".host_name"]
		if at == "" || device["type"] != "nic" || device["nictype"] != "bridged" || device[keyOwner] == "" || device[keyParent] == "" {
			continue
		}
		if ports == nil {
			ports = map[string]containerbroker.Port{}
		}
		ports[name] = containerbroker.Port{Device: at, Bridge: device[keyParent]}
	}
	return ports
}

// readdressed reports whether an interface stays but gets another address. It
// matters because LXD then permits only the new address, which the guest does
// not use yet.
func readdressed(m containerbroker.Machine, name string, have map[string]string) bool {
	at := slices.IndexFunc(m.NICs, func(n containerbroker.NIC) bool { return n.Name == name })
	if at < 0 || have[keyOwner] == "" {
		return false
	}
	want := nicDevice(m.NICs[at])
	moved := func(have, want string) bool { return have != "" && want != "" && have != want }
	return moved(have[keyIPv4], want[keyIPv4]) || moved(sixOf(have), sixOf(want))
}
