package bridgepolicy

import (
	"fmt"
	"slices"
	"strings"

	"hostler/hostnet"
)

// outside names the network that the host's default route leads to.
const outside = "the network of the default route"

// devices returns the host's links. local are the hypervisors' own bridges;
// other foreign bridges are not used for our machines.
func devices(o hostnet.Observed, namespace string, local []string) []Device {
	kinds := map[string]Kind{
		"": Ethernet, "veth": Ethernet, // a container's NIC
		"vlan": VLAN, "bond": Bond, "bridge": Bridge, "vxlan": VXLAN,
	}
	var all []Device
	for _, l := range o.Links {
		d := Device{Name: l.Name, Kind: Other, Parent: l.Parent, MAC: l.MAC, MTU: l.MTU, Local: slices.Contains(local, l.Name), OpenVSwitch: l.Kind == "openvswitch"}
		if kind, known := kinds[l.Kind]; known {
			d.Kind = kind
		}
		switch {
		case l.Loopback:
			d.Kind = Loopback
		case l.Wireless, l.Kind == "bridge" && !hostnet.Ours(namespace, l):
			d.Kind = Other
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
func Provide(o hostnet.Observed, namespace string, local []string) (declare, join string, err error) {
	need := Need{Method: Provider}
	if o.PrimaryNIC() != "" {
		need.Spaces = []string{outside}
	}
	all := devices(o, namespace, local)
	plan, err := Plan(need, all)
	if err != nil {
		return "", "", err
	}
	if len(plan) == 0 {
		nics, err := GuestNICs(need, all, true)
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

// Uplinks names the devices that can be declared as interfaces.
func Uplinks(o hostnet.Observed, local []string) string {
	names := Candidates(devices(o, "", local))
	if len(names) == 0 {
		return "it has no interface that can join a bridge"
	}
	return "the interfaces that can join a bridge are " + strings.Join(names, ", ")
}
