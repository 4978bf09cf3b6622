package networkprovisioner

import (
	"slices"
	"strings"

	"hostler/hostnet"
)

// nicsUnder are the host's NICs under a bridge: guests' are pairs and taps.
func nicsUnder(o hostnet.Observed, bridge string) []string {
	var nics []string
	for _, l := range o.Links {
		if l.Master == bridge && (l.Kind == "" || l.Kind == "bond" || l.Kind == "vlan") {
			nics = append(nics, l.Name)
		}
	}
	return nics
}

// hostsOwn says that the host's own network is on a bridge: a NIC of the host
// is under it, its way out or a lease is on it, or it comes back with the host's
// start. So it is known without a record, too, and while the NIC is away.
func hostsOwn(o Observed, bridge string) bool {
	return len(nicsUnder(o.Host, bridge)) > 0 || slices.Contains(o.Own.Lasting, bridge) ||
		slices.ContainsFunc(o.Host.RoutesOf(bridge), hostnet.Route.Default) ||
		slices.ContainsFunc(o.Host.AddressesOf(bridge), leasedAddress)
}

// idleBridge says that nobody misses the bridge. It looks at the host as it
// is: the steps that would take a NIC from a bridge of nobody are not taken.
func idleBridge(o Observed, bridge string) bool {
	return len(o.Host.Ports(bridge)) == 0 && !hostsOwn(o, bridge)
}

// unknownBridge is what a person is told of a bridge of ours that nothing
// declares and that stays.
func unknownBridge(o Observed, bridge string) string {
	if !hostsOwn(o, bridge) {
		return "the bridge " + bridge + " bears our stamp and nothing declares it: declare its network again, or remove it with `ip link delete " + bridge + "`"
	}
	with, back := "its NIC as one of its `interfaces`", "the NIC"
	if nics := nicsUnder(o.Host, bridge); len(nics) > 0 {
		back = strings.Join(nics, ", ")
		with = "`interfaces: [" + back + "]`"
	}
	return "the bridge " + bridge + " carries the host's own network, bears our stamp and nothing declares it: it is left as it is; " +
		"declare its network again, with " + with + "; to be rid of it delete that network afterwards, which gives " + back + " back what the bridge bears"
}
