package networkprovisioner

import (
	"fmt"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/hostnet"
	"hostler/hostnet/bridgepolicy"
)

// outside names the network that the host's default route leads to.
const outside = "the network of the default route"

// devices returns the host's links for package bridgepolicy. Foreign bridges
// are not used for our machines.
func devices(o hostnet.Observed, namespace string) []bridgepolicy.Device {
	kinds := map[string]bridgepolicy.Kind{
		"": bridgepolicy.Ethernet, "veth": bridgepolicy.Ethernet, // a container's NIC
		"vlan": bridgepolicy.VLAN, "bond": bridgepolicy.Bond, "bridge": bridgepolicy.Bridge, "vxlan": bridgepolicy.VXLAN,
	}
	var all []bridgepolicy.Device
	var local []string
	for _, t := range spec.ContainerTypes() {
		local = append(local, t.LocalBridge)
	}
	for _, l := range o.Links {
		d := bridgepolicy.Device{Name: l.Name, Kind: bridgepolicy.Other, Parent: l.Parent, MAC: l.MAC, MTU: l.MTU, Local: slices.Contains(local, l.Name), OpenVSwitch: l.Kind == "openvswitch"}
		if kind, known := kinds[l.Kind]; known {
			d.Kind = kind
		}
		switch {
		case l.Loopback:
			d.Kind = bridgepolicy.Loopback
		case l.Wireless, l.Kind == "bridge" && !ours(l, namespace):
			d.Kind = bridgepolicy.Other
		}
		if l.Master != "" {
			d.Parent = l.Master
		}
		for _, a := range o.AddressesOf(l.Name) {
			if network := a.Prefix.Masked().String(); !a.Prefix.Addr().IsLinkLocalUnicast() && !slices.Contains(d.Spaces, network) {
				d.Spaces = append(d.Spaces, network)
			}
		}
		d.Addressed = len(d.Spaces) > 0
		if d.Addressed && l.Name == o.PrimaryNIC() {
			d.Spaces = append(d.Spaces, outside)
		}
		all = append(all, d)
	}
	return all
}

// Provide returns the declaration that puts machines on the host's own network,
// or if bridges of ours exist already, how machines join those. A host NIC is
// never put under a bridge without a declaration. It is pure.
func Provide(o hostnet.Observed, namespace string) (declare, join string, err error) {
	need := bridgepolicy.Need{Method: bridgepolicy.Provider}
	if o.PrimaryNIC() != "" {
		need.Spaces = []string{outside}
	}
	all := devices(o, namespace)
	plan, err := bridgepolicy.Plan(need, all)
	if err != nil {
		return "", "", err
	}
	if len(plan) == 0 {
		nics, err := bridgepolicy.GuestNICs(need, all, true)
		var words []string
		for _, n := range nics {
			words = append(words, n.Name+" on "+n.Bridge)
		}
		return "", strings.Join(words, ", "), err
	}
	var networks []string
	for _, b := range plan {
		name := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(b.Bridge, "br-")), "_", "-")
		networks = append(networks, fmt.Sprintf("%s: {bridge: %s, interfaces: [%s]}", name, b.Bridge, b.Device))
	}
	return "networks: {" + strings.Join(networks, ", ") + "}", "", nil
}

// uplinks names the devices that can be declared as interfaces.
func uplinks(o hostnet.Observed) string {
	names := bridgepolicy.Candidates(devices(o, ""))
	if len(names) == 0 {
		return "it has no interface that can join a bridge"
	}
	return "the interfaces that can join a bridge are " + strings.Join(names, ", ")
}
