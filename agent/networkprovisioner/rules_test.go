package networkprovisioner

import (
	"fmt"
	"net/netip"
	"testing"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/hostnet"
	"hostler/hostnet/firewall"
)

// Guests whose frames are filtered at the host's end, and the addresses allowed
// to them.
func TestGuestsMaySendFromTheirOwnAddressesOnly(t *testing.T) {
	d := two()
	db := &d.Machines[1]
	db.Type, db.Instance = spec.KVM, true
	o := &Observed{}
	filters := func() (texts string) {
		t.Helper()
		for _, g := range carryOut(t, &d, o).Rules.Guests {
			texts += fmt.Sprintln(g.Owner, g.Ports, g.Addresses)
			if g.Router {
				texts += "is a router\n"
			}
		}
		return texts
	}
	port, web := containerbroker.PortOf(guestMAC("m-db", "eth0")), containerbroker.PortOf(guestMAC("m-web", "eth0"))
	equalText(t, "the filters", filters(), "m-db ["+port+"] [10.20.0.2]\nm-web ["+web+"] [10.20.0.10]\n")
	// Until the guest is as declared, it may also use its previous address.
	db.NICs, db.AttachmentsMatch = on("lan", "10.20.0.7/24"), false
	equalText(t, "the filters meanwhile", filters(), "m-db ["+port+"] [10.20.0.7 10.20.0.2]\nm-web ["+web+"] [10.20.0.10]\n")
	db.AttachmentsMatch = true
	equalText(t, "the filters afterwards", filters(), "m-db ["+port+"] [10.20.0.7]\nm-web ["+web+"] [10.20.0.10]\n")
	// An instance from before the naming scheme keeps its device name until it
	// is recreated.
	d.Machines[0].Ports = map[string]spec.Port{"eth0": {Device: "veth1", Bridge: "br-lan"}}
	db.Ports = map[string]spec.Port{"eth0": {Device: port, Bridge: "br-lan"}}
	equalText(t, "the filters of an older instance", filters(), "m-db ["+port+"] [10.20.0.7]\nm-web ["+web+" veth1] [10.20.0.10]\n")
	d.Machines[0].Ports["eth0"] = spec.Port{Device: `veth"1`, Bridge: "br-lan"}
	equalText(t, "no name that the firewall would refuse", filters(), "m-db ["+port+"] [10.20.0.7]\nm-web ["+web+"] [10.20.0.10]\n")
	// On a network whose addresses hostler does not assign, only the MAC address
	// is enforced.
	d = Desired{Networks: []Network{network("lan", spec.Network{Bridge: "br-lan"})}, Machines: []Machine{guest("db", on("lan", "")), guest("web", on("lan", ""))}}
	d.Machines[0].Type = spec.KVM
	equalText(t, "the filters without addresses", filters(), "m-db ["+port+"] []\nm-web ["+web+"] []\n")
	// A machine that is declared as a router may send for others.
	router := d.Machines[0].NICs["eth0"]
	router.Router = true
	d.Machines[0].NICs = map[string]spec.NIC{"eth0": router}
	equalText(t, "the filters of a router", filters(), "m-db ["+port+"] []\nis a router\nm-web ["+web+"] []\n")
	if err := (firewall.Rules{Networks: Make(d, *o, policy()).Rules.Networks, Guests: Make(d, *o, policy()).Rules.Guests}).Check(); err != nil {
		t.Error(err)
	}
}

// On a bridge over a host's NIC, the rules know the host's own addresses:
// declared addresses, and those that the kernel has, e.g. from SLAAC. A guest
// whose machine is gone shares its owner with no other guest.
func TestRulesHoldTheHostsOwnAddresses(t *testing.T) {
	d := Desired{Networks: []Network{
		network("up", spec.Network{Bridge: "br-up", Interfaces: []string{"eth0"}, Addresses: []string{"192.0.2.1/24", "fd00::1/64"}}),
		network("lan", lan()),
	}}
	planned := []Planned{{On: true, Is: d.Networks[0].Record.Network, Guests: map[string]spec.GuestAddress{
		"gone/eth0": {MAC: "02:00:00:00:00:01"}, "lost/eth0": {MAC: "02:00:00:00:00:02"},
	}}, {On: true, Is: d.Networks[1].Record.Network}}
	o := Observed{Host: hostnet.Observed{Addresses: []hostnet.Address{
		{Link: "br-up", Prefix: netip.MustParsePrefix("fd00::1/64")},
		{Link: "br-up", Prefix: netip.MustParsePrefix("2001:db8::5/64"), Valid: 600},
		{Link: "eth1", Prefix: netip.MustParsePrefix("2001:db8::6/64")},
	}}}
	var r firewall.Rules
	d.index = indexOf(d)
	for i, n := range d.Networks {
		addRules(&r, d, n, planned[i], o)
	}
	equalText(t, "the host's addresses", fmt.Sprint(r.Networks[0].Addresses), "[192.0.2.1 2001:db8::5 fd00::1]")
	equalText(t, "on another bridge", fmt.Sprint(r.Networks[1].Addresses), "[]")
	if r.Guests[0].Owner == r.Guests[1].Owner {
		t.Errorf("both guests belong to %s", r.Guests[0].Owner)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}
