package networkprovisioner

import (
	"net/netip"
	"testing"

	"hostler/agent/spec"
	"hostler/hostnet"
	"hostler/hostnet/persist"
	"hostler/internal/fault"
)

// Each declaration that conflicts with the host is refused with these words.
func TestConflictsWithTheHostAreRefused(t *testing.T) {
	o := Observed{
		Listening: map[string]bool{"tcp/22": true},
		Obstacles: map[string]string{"eth1": "udhcpc renews the lease of eth1"},
		Host: hostnet.Observed{
			Links: []hostnet.Link{{Name: "eth1", Up: true}, {Name: "br-own", Kind: "bridge", Alias: hostnet.Stamp("ns", "u-own")}, {Name: "lo", Loopback: true}},
			Routes: []hostnet.Route{
				{Link: "eth1", Destination: netip.MustParsePrefix("192.0.2.0/24")},
				{Link: "eth1", Destination: netip.MustParsePrefix("0.0.0.0/0")},
				{Link: "br-own", Destination: netip.MustParsePrefix("10.30.0.0/24")},
				{Link: "lo", Destination: netip.MustParsePrefix("10.40.0.0/24")},
			},
		},
	}
	publishing := guest("web", on("lan", ""))
	publishing.Publish = []spec.Publish{{Protocol: "tcp", HostPort: 22, Port: 22}}
	with := func(n spec.Network, more ...Network) []Network { return append([]Network{network("lan", n)}, more...) }
	for _, c := range []struct {
		name string
		d    Desired
		want string
	}{
		{"fine", two(), ""},
		{
			"a subnet of the host",
			Desired{Networks: with(spec.Network{Bridge: "br-lan", Addresses: []string{"192.0.2.129/25"}})},
			"network/lan: cannot use the subnet 192.0.2.128/25 for the network lan: the host reaches 192.0.2.0/24 over eth1; use another range",
		},
		{
			"a device of the name",
			Desired{Networks: with(spec.Network{Bridge: "eth1"})},
			"network/lan: eth1 is a network device of this host and not a bridge; choose another bridge name",
		},
		{
			"a missing interface",
			Desired{Networks: with(spec.Network{Bridge: "br-lan", Interfaces: []string{"eth7"}})},
			"network/lan: this host has no interface eth7; the interfaces that can join a bridge are eth1",
		},
		{
			"a DHCP client",
			Desired{Networks: with(spec.Network{Bridge: "br-lan", Interfaces: []string{"eth1"}})},
			"network/lan: cannot put eth1 under br-lan: udhcpc renews the lease of eth1",
		},
		{
			"a port in use",
			Desired{Networks: with(lan()), Machines: []Machine{publishing}},
			"tcp port 22 of the host is in use by a process of the host (see `ss -ln`), so machine/web cannot be reached by it; publish another port, or end that process",
		},
		{
			"two declarations",
			Desired{Networks: with(lan(), network("own", spec.Network{Bridge: "br-own", Addresses: []string{"10.20.0.65/26"}}))},
			"cannot use the subnet 10.20.0.64/26 for the network own: it overlaps 10.20.0.0/24 of the network lan",
		},
	} {
		err := Refuse(c.d, o, policy(), map[string]bool{"network/lan": true, "machine/web": true})
		got := ""
		if err != nil {
			got = err.Error()
			if !fault.Is(err, fault.Conflict) {
				t.Errorf("%s: kind %s", c.name, fault.KindOf(err))
			}
		}
		equalText(t, c.name, got, c.want)
		if err := Refuse(c.d, o, policy(), nil); err != nil {
			t.Errorf("%s: unchanged, and refused: %v", c.name, err)
		}
	}
}

// later is a BootPersister that only names the NICs after a network's first.
type later struct{ BootPersister }

func (later) Obstacle(nic persist.NIC) string {
	if nic.Later {
		return "later"
	}
	return ""
}

// Only NICs after a network's first count as later ones.
func TestLaterNICsOfANetwork(t *testing.T) {
	d := Desired{Networks: []Network{network("lan", spec.Network{Bridge: "br-lan", Interfaces: []string{"eth1", "eth0"}})}}
	host := hostnet.Observed{Links: []hostnet.Link{{Name: "eth0"}, {Name: "eth1"}}}
	if all := (Eyes{Persister: later{}}).obstacles(d, host); len(all) != 1 || all["eth0"] == "" {
		t.Error(all)
	}
}

// before is a BootPersister that only names the NICs that were under a bridge before.
type before struct{ BootPersister }

func (before) Obstacle(nic persist.NIC) string {
	if nic.Before {
		return "before"
	}
	return ""
}

// A NIC that hostler put under a bridge before stays accepted, whatever the bridge is
// called.
func TestNICsThatWereUnderABridgeBefore(t *testing.T) {
	for name, c := range map[string]struct {
		applied *spec.Network
		master  string
		want    bool
	}{
		"never":                                {nil, "", false},
		"under the same bridge":                {&spec.Network{Bridge: "br-lan", Interfaces: []string{"eth0"}}, "", true},
		"under a bridge of another name":       {&spec.Network{Bridge: "br-old", Interfaces: []string{"eth0"}}, "br-old", true},
		"the bridge had another NIC":           {&spec.Network{Bridge: "br-lan", Interfaces: []string{"eth1"}}, "", false},
		"now under another network's bridge":   {nil, "br-dmz", true},
		"now under a bridge of another origin": {nil, "br-theirs", false},
	} {
		n := network("lan", spec.Network{Bridge: "br-lan", Interfaces: []string{"eth0"}})
		n.Status.Applied = c.applied
		dmz := network("dmz", spec.Network{Bridge: "br-dmz"})
		host := hostnet.Observed{Links: []hostnet.Link{
			{Name: "eth0", Master: c.master}, {Name: "br-old"}, {Name: "br-dmz", Alias: hostnet.Stamp("ns", dmz.UID)}, {Name: "br-theirs", Alias: hostnet.Stamp("ns", "u-theirs")},
		}}
		all := (Eyes{Persister: before{}}).obstacles(Desired{Networks: []Network{n, dmz}}, host)
		if got := all["eth0"] != ""; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
