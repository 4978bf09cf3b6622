package networkprovisioner

import (
	"net/netip"
	"slices"
	"testing"

	"hostler/hostnet"
)

// Forwarders are the foreign bridges that need the host as their router. They
// exclude our bridges, bridges over a NIC, the host's own default route, and
// bridges without an address.
func TestForwardersAreForeignBridgesThatNeedARouter(t *testing.T) {
	var o hostnet.Observed
	bridge := func(name, alias string, addresses ...string) {
		o.Links = append(o.Links, hostnet.Link{Name: name, Kind: "bridge", Alias: alias})
		for _, a := range addresses {
			o.Addresses = append(o.Addresses, hostnet.Address{Link: name, Prefix: netip.MustParsePrefix(a)})
		}
	}
	bridge("virbr0", "", "192.168.122.1/24")
	bridge("docker0", "", "172.17.0.1/16", "fe80::1/64")
	bridge("lxdbr0", "", "10.9.0.1/24", "fd42::1/64")
	bridge("br-ours", hostnet.Stamp("ns", "u"), "10.1.0.1/24", "fd00::1/64")
	bridge("br-others", hostnet.Stamp("second", "u"), "10.2.0.1/24")
	bridge("br-empty", "")
	bridge("br-nic", "", "192.0.2.9/24")
	bridge("br-out", "", "192.0.2.7/24")
	o.Links = append(o.Links, hostnet.Link{Name: "eth0", Master: "br-nic"}, hostnet.Link{Name: "vnet0", Kind: "tun", Master: "virbr0"}, hostnet.Link{Name: "eth1"})
	o.Addresses = append(o.Addresses, hostnet.Address{Link: "eth1", Prefix: netip.MustParsePrefix("10.3.0.1/24")})
	o.Routes = append(o.Routes, hostnet.Route{Link: "br-out", Destination: netip.MustParsePrefix("0.0.0.0/0"), Table: 254})
	if got := forwarders(o, policy(), true); !slices.Equal(got, []string{"br-others", "docker0", "lxdbr0", "virbr0"}) {
		t.Errorf("IPv4 is forwarded for %q", got)
	}
	if got := forwarders(o, policy(), false); !slices.Equal(got, []string{"lxdbr0"}) {
		t.Errorf("IPv6 is forwarded for %q", got)
	}
}
