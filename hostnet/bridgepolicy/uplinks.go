package bridgepolicy

import (
	"fmt"
	"slices"
	"strings"

	"hostler/hostnet"
)

// outside names the network that the host's default route leads to.
const outside = "the network of the default route"

// devices returns the host's links as devices. local names the hypervisors' own
// bridges. Other foreign bridges get kindOther, because our machines do not
// join them.
func devices(o hostnet.Observed, namespace string, local []string) []device {
	kinds := map[string]kind{
		"": kindEthernet, "veth": kindEthernet, // a container's NIC
		"vlan": kindVLAN, "bond": kindBond, "bridge": kindBridge, "vxlan": kindVXLAN,
	}
	var all []device
	for _, l := range o.Links {
		d := device{Name: l.Name, Kind: kindOther, Parent: l.Parent, MTU: l.MTU, Local: slices.Contains(local, l.Name), OpenVSwitch: l.Kind == "openvswitch"}
		if kind, known := kinds[l.Kind]; known {
			d.Kind = kind
		}
		switch {
		case l.Loopback:
			d.Kind = kindLoopback
		case l.Wireless, l.Kind == "bridge" && !hostnet.Ours(namespace, l):
			d.Kind = kindOther
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

// Provide returns in declare the networks to declare so that machines join the
// host's own network. If our bridges exist already, it returns in join how
// machines join them, e.g. "eth0 on br-en0". Provide is pure. hostler puts a
// host NIC under a bridge only if a document declares it.
func Provide(o hostnet.Observed, namespace string, local []string) (declare, join string, err error) {
	need := need{Method: methodProvider}
	if o.PrimaryNIC() != "" {
		need.Spaces = []string{outside}
	}
	all := devices(o, namespace, local)
	plan, err := planBridges(need, all)
	if err != nil {
		return "", "", err
	}
	if len(plan) == 0 {
		nics, err := planNICs(need, all, true)
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

// Uplinks returns a phrase for messages that names the devices that can be
// declared as interfaces.
func Uplinks(o hostnet.Observed, local []string) string {
	names := candidates(devices(o, "", local))
	if len(names) == 0 {
		return "it has no interface that can join a bridge"
	}
	return "the interfaces that can join a bridge are " + strings.Join(names, ", ")
}
