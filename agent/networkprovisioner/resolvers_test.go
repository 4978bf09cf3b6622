package networkprovisioner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/hostnet"
	"hostler/hostnet/ipam"
	"hostler/hostnet/resolvconf"
)

// B5: if the host has no name server that guests can reach, a single notice
// names the affected networks.
func TestNoticeWhereNothingResolves(t *testing.T) {
	network := func(dhcp, forwarding bool, gateways ...string) Planned {
		return Planned{On: true, Is: spec.Network{DHCP: dhcp, Forwarding: forwarding}, Gateways: gateways}
	}
	d := Desired{Networks: []Network{{Name: "served"}, {Name: "static"}, {Name: "apart"}, {Name: "off"}}}
	p := Plan{Networks: []Planned{network(true, true, "10.0.0.1"), network(false, true, "10.1.0.1"), network(false, false), {}}}
	for _, c := range []struct {
		r         resolvconf.Resolvers
		has, lack string
	}{
		{resolvconf.Resolvers{}, "served, static cannot resolve names", "dhcp: true"},
		{resolvconf.Resolvers{Local: true}, "static cannot resolve names: the host's only name server is itself", "served"},
		{resolvconf.Resolvers{Local: true}, "or declare `dhcp: true`", "off"},
	} {
		got := unresolved(d, p, c.r)
		if !strings.Contains(got, c.has) || strings.Contains(got, c.lack) {
			t.Errorf("%+v: %q, want %q and not %q", c.r, got, c.has, c.lack)
		}
	}
	if got := unresolved(d, p, resolvconf.Resolvers{Servers: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}); got != "" {
		t.Errorf("with a server: %q", got)
	}
}

// A machine on the LAN of the host's NIC does not get the address of the gateway.
func TestTheGatewaysAddressIsNotGivenOut(t *testing.T) {
	var o Observed
	o.Host.Routes = []hostnet.Route{{Link: "eth0", Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1")}}
	up := spec.Network{Bridge: "br-up", Interfaces: []string{"eth0"}, Addresses: []string{"192.0.2.10/24"}}
	pool := poolOf(Network{Name: "up"}, up, o, nil)
	if a, err := pool.Allocate("up", false, ipam.Owner{Machine: "uid-web", NIC: "eth0"}, time.Now()); err != nil || a.String() != "192.0.2.2" {
		t.Errorf("%v, %v", a, err)
	}
}

// The gateway of the host's NIC is known while its routes are on the bridge that the network
// had before: guests keep it, and none gets its address.
func TestTheGatewayIsKnownWhileTheBridgeIsRenamed(t *testing.T) {
	o := Observed{Resolvers: resolvconf.Resolvers{Servers: []netip.Addr{netip.MustParseAddr("198.51.100.1")}}}
	o.Host.Routes = []hostnet.Route{{Link: "br-old", Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1")}}
	up := spec.Network{Bridge: "br-up", Interfaces: []string{"eth0"}, Addresses: []string{"192.0.2.10/24"}}
	was := up
	was.Bridge = "br-old"
	if gateways, nameservers := towards(up, &was, o); !slices.Equal(gateways, []string{"192.0.2.1"}) || !slices.Equal(nameservers, []string{"198.51.100.1"}) {
		t.Errorf("gateways %v, name servers %v", gateways, nameservers)
	}
	pool := poolOf(Network{Name: "up", Status: spec.NetworkStatus{Applied: &was}}, up, o, nil)
	if a, err := pool.Allocate("up", false, ipam.Owner{Machine: "uid-web", NIC: "eth0"}, time.Now()); err != nil || a.String() != "192.0.2.2" {
		t.Errorf("%v, %v", a, err)
	}
}
