package networkprovisioner

import (
	"fmt"
	"net/netip"
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
