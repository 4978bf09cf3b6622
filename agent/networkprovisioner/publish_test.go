package networkprovisioner

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"hostler/agent/spec"
)

// A published port leads to the address that the instance has. While the restart
// for another address or network awaits permission, that is the former one.
func TestPublishedPortsLeadToTheInstance(t *testing.T) {
	dmz := lan()
	dmz.Bridge, dmz.Addresses = "br-dmz", []string{"10.30.0.1/24"}
	for what, c := range map[string]struct {
		nics map[string]spec.NIC
		to   string
	}{
		"another address": {on("lan", "10.20.0.11/24"), "br-lan 10.20.0.11"},
		"another network": {on("dmz", "10.30.0.10/24"), "br-dmz 10.30.0.10"},
	} {
		d, o := two(), Observed{}
		d.Networks = append(d.Networks, network("dmz", dmz))
		led := func() string {
			t.Helper()
			p := carryOut(t, &d, &o)
			if len(p.Rules.Publish) != 1 {
				return fmt.Sprintf("%+v", p.Rules.Publish)
			}
			return p.Rules.Publish[0].Bridge + " " + p.Rules.Publish[0].Address.String()
		}
		equalText(t, what+": at first", led(), "br-lan 10.20.0.10")
		web := &d.Machines[0]
		web.NICs = c.nics
		web.Status.Instance, web.Status.UsesNICs, web.AttachmentsMatch = &spec.InstanceInfo{}, []string{"network/lan/eth0"}, false
		equalText(t, what+": nothing is known of the guest", led(), c.to)
		web.Addresses = []netip.Addr{netip.MustParseAddr("10.20.0.10"), netip.MustParseAddr("fe80::1")}
		equalText(t, what+": the restart waits", led(), "br-lan 10.20.0.10")
		web.Addresses = addressesOf(spec.GuestAddress{Addresses: []string{c.nics["eth0"].Address}})
		equalText(t, what+": restarted", led(), c.to)
		web.Addresses, web.AttachmentsMatch = []netip.Addr{netip.MustParseAddr("10.20.0.10")}, true
		equalText(t, what+": as declared", led(), c.to)
	}
}

// The port stays at its NIC, at one address, whatever other addresses the guest has.
func TestPublishedPortsStayAtTheirNIC(t *testing.T) {
	dmz := lan()
	dmz.Bridge, dmz.Addresses = "br-dmz", []string{"10.30.0.1/24"}
	for what, second := range map[string]spec.NIC{
		"in another network":  {Network: "dmz", Address: "10.30.0.10/24"},
		"in the same network": {Network: "lan", Address: "10.20.0.12/24"},
	} {
		d, o := two(), Observed{}
		d.Networks = []Network{network("dmz", dmz), d.Networks[0]}
		web := &d.Machines[0]
		first := func(address string) {
			web.NICs = map[string]spec.NIC{"eth0": {Network: "lan", Address: address}, "eth1": second}
		}
		first("10.20.0.10/24")
		carryOut(t, &d, &o)
		web.Status.Instance, web.Status.UsesNICs = &spec.InstanceInfo{}, []string{"network/lan/eth0", "network/" + second.Network + "/eth1"}
		web.AttachmentsMatch = false
		web.Addresses = addressesOf(spec.GuestAddress{Addresses: []string{second.Address, "10.20.0.10/24", "10.20.0.11/24"}})
		for _, address := range []string{"10.20.0.11/24", "10.20.0.13/24"} {
			first(address)
			if address == "10.20.0.11/24" {
				web.Addresses = web.Addresses[:2]
			} else { // the guest gives itself the one that it was to have
				web.Addresses = web.Addresses[:3]
			}
			p := carryOut(t, &d, &o)
			if len(p.Rules.Publish) != 1 || p.Rules.Publish[0].Bridge != "br-lan" || p.Rules.Publish[0].Address.String() != "10.20.0.10" {
				t.Errorf("%s, with %s declared: %+v", what, address, p.Rules.Publish)
			}
		}
	}
}

// A published port leads to the interface that the guest has until it gets the one with
// another name.
func TestPortsLeadToTheFormerInterface(t *testing.T) {
	nic := func(a string) spec.NIC { return spec.NIC{Network: "lan", Address: a} }
	for name, c := range map[string]struct {
		before, now map[string]spec.NIC
		addresses   []string
	}{
		"both families":   {map[string]spec.NIC{"eth0": nic("10.20.0.10/24")}, map[string]spec.NIC{"lan0": nic("10.20.0.10/24")}, []string{"10.20.0.1/24", "fd00:20::1/64"}},
		"given addresses": {map[string]spec.NIC{"eth0": nic("")}, map[string]spec.NIC{"lan0": nic("")}, []string{"10.20.0.1/24"}},
		"another address": {map[string]spec.NIC{"eth0": nic("10.20.0.10/24")}, map[string]spec.NIC{"lan0": nic("10.20.0.20/24")}, []string{"10.20.0.1/24"}},
		"the same name":   {map[string]spec.NIC{"eth0": nic("10.20.0.10/24")}, map[string]spec.NIC{"eth0": nic("10.20.0.20/24")}, []string{"10.20.0.1/24"}},
	} {
		d, o := two(), Observed{}
		d.Networks[0].Record.Network.Addresses = c.addresses
		web := &d.Machines[0]
		web.NICs, web.Status.Instance, web.Status.UsesNICs, web.AttachmentsMatch = c.before, &spec.InstanceInfo{}, []string{spec.NICObject("lan", "eth0")}, true
		web.Publish = []spec.Publish{{Protocol: "tcp", HostPort: 8080, Port: 80}}
		p := carryOut(t, &d, &o)
		leads := func() (to []netip.Addr) {
			for _, r := range p.Rules.Publish {
				to = append(to, r.Address)
			}
			return to
		}
		before := leads()
		web.Addresses = nil
		for _, a := range p.Networks[0].Guests["web/eth0"].Addresses {
			web.Addresses = append(web.Addresses, netip.MustParsePrefix(a).Addr())
		}
		web.NICs, web.AttachmentsMatch = c.now, false
		for range 2 {
			p = carryOut(t, &d, &o)
		}
		if now := leads(); len(before) == 0 || !slices.Equal(now, before) {
			t.Errorf("%s: the guest has %v, the port leads to %v, before to %v", name, web.Addresses, now, before)
		}
	}
}
