package bridgepolicy

import (
	"net/netip"
	"testing"

	"hostler/hostnet"
)

// N12 N13 N16 N17: the declaration that puts machines on the host's own
// network, and the devices that it can name.
func TestUplinks(t *testing.T) {
	link := func(name, kind, master, parent, alias string) hostnet.Link {
		return hostnet.Link{Name: name, Kind: kind, Master: master, Parent: parent, Alias: alias}
	}
	address := func(link, prefix string) hostnet.Address {
		return hostnet.Address{Link: link, Prefix: netip.MustParsePrefix(prefix)}
	}
	route := func(link string) hostnet.Route {
		return hostnet.Route{Link: link, Destination: netip.MustParsePrefix("0.0.0.0/0"), Table: 254}
	}
	nics := []hostnet.Link{link("eth10", "", "", "", ""), link("eth2", "", "", "", ""), link("eth0", "", "bond0", "", ""), link("bond0", "bond", "", "", ""), link("bond0.5", "vlan", "", "bond0", "")}
	for _, c := range []struct {
		name          string
		o             hostnet.Observed
		declare, fail string // if both are empty, machines join an existing bridge
		uplinks       string
	}{
		{
			"the NIC of the default route",
			hostnet.Observed{Links: nics, Addresses: []hostnet.Address{address("eth10", "192.0.2.9/24"), address("eth2", "10.0.0.1/24")}, Routes: []hostnet.Route{route("eth10")}},
			"networks: {eth10: {bridge: br-eth10, interfaces: [eth10]}}", "", "the interfaces that can join a bridge are bond0, bond0.5, eth2, eth10",
		},
		{
			"a VLAN",
			hostnet.Observed{Links: nics, Addresses: []hostnet.Address{address("bond0.5", "192.0.2.9/24")}, Routes: []hostnet.Route{route("bond0.5")}},
			"networks: {bond0-5: {bridge: br-bond0-5, interfaces: [bond0.5]}}", "", "the interfaces that can join a bridge are bond0, bond0.5, eth2, eth10",
		},
		{
			"a bridge of ours",
			hostnet.Observed{Links: []hostnet.Link{link("br-up", "bridge", "", "", hostnet.Stamp("ns", "u")), link("eth0", "", "br-up", "", "")}, Addresses: []hostnet.Address{address("br-up", "192.0.2.9/24")}, Routes: []hostnet.Route{route("br-up")}},
			"eth0 on br-up", "", "it has no interface that can join a bridge",
		},
		{
			"a bridge of somebody else's",
			hostnet.Observed{Links: []hostnet.Link{link("br0", "bridge", "", "", ""), link("eth0", "", "br0", "", "")}, Addresses: []hostnet.Address{address("br0", "192.0.2.9/24")}, Routes: []hostnet.Route{route("br0")}},
			"", "cannot bridge: the host has no device to bridge for the network of the default route", "it has no interface that can join a bridge",
		},
		{
			"no way out, several networks",
			hostnet.Observed{Links: nics, Addresses: []hostnet.Address{address("eth10", "192.0.2.9/24"), address("eth2", "10.0.0.1/24")}},
			"", "cannot choose a network for the guests: no obvious space, the host is in 10.0.0.0/24, 192.0.2.0/24", "the interfaces that can join a bridge are bond0, bond0.5, eth2, eth10",
		},
	} {
		declare, join, err := Provide(c.o, "ns", nil)
		fail := ""
		if err != nil {
			fail = err.Error()
		}
		if declare+join != c.declare || fail != c.fail {
			t.Errorf("%s: %q, %q", c.name, declare+join, fail)
		}
		if got := Uplinks(c.o, nil); got != c.uplinks {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
