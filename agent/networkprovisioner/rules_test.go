package networkprovisioner

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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
	db.Status.Instance = &spec.InstanceInfo{}
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
	for minutes := range 5 { // e.g. its restart is not allowed yet
		at(t, &d, *o, t0.Add(time.Duration(minutes)*4*time.Minute))
	}
	equalText(t, "the filters long after", filters(), "m-db ["+port+"] [10.20.0.7 10.20.0.2]\nm-web ["+web+"] [10.20.0.10]\n")
	db.AttachmentsMatch = true
	equalText(t, "the filters afterwards", filters(), "m-db ["+port+"] [10.20.0.7]\nm-web ["+web+"] [10.20.0.10]\n")
	// An instance from before the naming scheme keeps its device name until it
	// is recreated.
	d.Machines[0].Status.Ports = map[string]spec.Port{"eth0": {Device: "veth1", Bridge: "br-lan"}}
	db.Status.Ports = map[string]spec.Port{"eth0": {Device: port, Bridge: "br-lan"}}
	equalText(t, "the filters of an older instance", filters(), "m-db ["+port+"] [10.20.0.7]\nm-web ["+web+" veth1] [10.20.0.10]\n")
	d.Machines[0].Status.Ports["eth0"] = spec.Port{Device: `veth"1`, Bridge: "br-lan"}
	equalText(t, "no name that the firewall would refuse", filters(), "m-db ["+port+"] [10.20.0.7]\nm-web ["+web+"] [10.20.0.10]\n")
	// On a network whose addresses hostler does not assign, only the MAC address
	// is enforced.
	d = Desired{Networks: []Network{network("lan", spec.Network{Bridge: "br-lan"})}, Machines: []Machine{guest("db", on("lan", "")), guest("web", on("lan", ""))}}
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
	m := newMaker(o, policy())
	m.readDesired(d)
	for i, n := range m.Networks {
		m.rules(n, planned[i])
	}
	r := m.p.Rules
	equalText(t, "the host's addresses", fmt.Sprint(r.Networks[0].Addresses), "[192.0.2.1 2001:db8::5 fd00::1]")
	equalText(t, "on another bridge", fmt.Sprint(r.Networks[1].Addresses), "[]")
	if r.Guests[0].Owner == r.Guests[1].Owner {
		t.Errorf("both guests belong to %s", r.Guests[0].Owner)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

// The previous addresses of machines that change together leave the rules
// together, so that the rules are loaded twice and not once for each machine.
// An address that another machine gets leaves at once.
func TestPreviousAddressesLeaveTogether(t *testing.T) {
	const machines = 100
	d, o := Desired{Networks: []Network{network("lan", spec.Network{Bridge: "br-lan", Addresses: []string{"10.20.0.1/22"}})}}, &Observed{}
	declare := func(first int) {
		for i := range d.Machines {
			d.Machines[i].NICs = on("lan", fmt.Sprintf("10.20.%d.%d/22", first+i/100, 10+i%100))
			d.Machines[i].Publish = []spec.Publish{{Protocol: "tcp", HostPort: 10_000*(1+first) + i, Port: 80}}
		}
	}
	loads, last := 0, ""
	pass := func() string {
		t.Helper()
		if now := fmt.Sprint(carryOut(t, &d, o).Rules); now != last {
			loads++
			last = now
		}
		return last
	}
	for i := range machines {
		d.Machines = append(d.Machines, guest(fmt.Sprintf("m%03d", i), nil))
	}
	declare(0)
	pass()
	if loads != 1 {
		t.Errorf("%d loads for the first declaration", loads)
	}
	for i := range d.Machines {
		d.Machines[i].Status.Instance, d.Machines[i].AttachmentsMatch = &spec.InstanceInfo{}, false
	}
	loads = 0
	declare(1)
	pass()
	if loads != 1 {
		t.Errorf("%d loads for the change", loads)
	}
	for i := range d.Machines {
		d.Machines[i].AttachmentsMatch = true
		pass()
	}
	if loads != 2 {
		t.Errorf("%d loads until all machines are as declared, want 2", loads)
	}
	if strings.Contains(pass(), "10.20.0.10") {
		t.Error("a previous address stays in the rules")
	}

	// m000 gets the address of m001, which is as declared before m000 is.
	later := t0.Add(time.Hour)
	at(t, &d, *o, later) // the addresses of before have rested
	d.Machines[0].NICs, d.Machines[1].NICs = on("lan", "10.20.1.11/22"), on("lan", "10.20.2.11/22")
	d.Machines[0].AttachmentsMatch, d.Machines[1].AttachmentsMatch = false, false
	at(t, &d, *o, later)
	d.Machines[1].AttachmentsMatch = true
	for _, g := range at(t, &d, *o, later).Rules.Guests[:2] {
		want := map[string]string{"m-m000": "[10.20.1.11 10.20.1.10]", "m-m001": "[10.20.2.11]"}[g.Owner]
		equalText(t, "the addresses of "+g.Owner, fmt.Sprint(g.Addresses), want)
	}
}

// The NICs of machines that are removed together leave the rules together.
func TestRemovedNICsLeaveTogether(t *testing.T) {
	const machines = 100
	d, o := Desired{Networks: []Network{network("lan", spec.Network{Bridge: "br-lan", Addresses: []string{"10.20.0.1/22"}})}}, &Observed{}
	for i := range machines {
		m := guest(fmt.Sprintf("m%03d", i), on("lan", ""))
		m.Status.Instance, m.Status.UsesNICs = &spec.InstanceInfo{}, []string{spec.NICObject("lan", "eth0")}
		m.Publish = []spec.Publish{{Protocol: "tcp", HostPort: 10_000 + i, Port: 80}}
		d.Machines = append(d.Machines, m)
	}
	last := fmt.Sprint(carryOut(t, &d, o).Rules)
	loads := 0
	pass := func() (guests int) {
		t.Helper()
		rules := carryOut(t, &d, o).Rules
		if now := fmt.Sprint(rules); now != last {
			loads++
			last = now
		}
		return len(rules.Guests)
	}
	for i := range d.Machines {
		d.Machines[i].Dying = true
	}
	pass()
	for range machines - 1 {
		d.Machines = d.Machines[1:]
		pass()
	}
	d.Machines = nil
	if left := pass(); left != 0 || loads != 2 {
		t.Errorf("%d guests are left in the rules after %d loads, want none after 2: without the ports, and without the NICs", left, loads)
	}
}

// A machine does not get the address of an instance that remained of a removed
// machine with its name, also while other machines of the network change.
func TestAddressOfARemainingInstanceIsNotUsedByAnother(t *testing.T) {
	d, o := two(), &Observed{}
	carryOut(t, &d, o)
	for _, g := range d.Networks[0].Status.Guests {
		if slices.Contains(g.Addresses, "10.20.0.10/24") {
			o.Using = map[string]bool{g.MAC: true}
		}
	}
	if len(o.Using) != 1 {
		t.Fatal(d.Networks[0].Status.Guests)
	}
	d.Machines = d.Machines[1:]
	carryOut(t, &d, o)
	another := guest("web", on("lan", "10.20.0.11/24"))
	another.UID = "another"
	d.Machines = append([]Machine{another}, d.Machines...)
	for i := range d.Machines {
		d.Machines[i].Status.Instance, d.Machines[i].AttachmentsMatch = &spec.InstanceInfo{}, i == 0
	}
	carryOut(t, &d, o)
	for _, g := range carryOut(t, &d, o).Rules.Guests {
		if g.Owner == "another" && len(g.Addresses) != 1 {
			t.Errorf("the new machine may use %v", g.Addresses)
		}
	}
}

// After the clock was set back, a removed NIC does not stay in the rules until
// the clock has caught up.
func TestRemovedNICLeavesThoughTheClockWasSetBack(t *testing.T) {
	for age, want := range map[time.Duration]bool{0: true, lingers - 1: true, lingers: false, -time.Hour: false} {
		released := t0.Add(-age)
		if got := (usable{now: t0}).recent(spec.GuestAddress{Released: &released}); got != want {
			t.Errorf("%s after its release: %t", age, got)
		}
	}
}

// A NIC that moves to another network leaves the rules of its former network at
// once, because its port would have the addresses of both.
func TestMovedNICLeavesTheRulesAtOnce(t *testing.T) {
	d, o := two(), &Observed{}
	d.Networks = append(d.Networks, network("wan", spec.Network{Bridge: "br-wan"}))
	carryOut(t, &d, o)
	d.Machines[0].NICs = on("wan", "")
	d.Machines[1].Status.Instance, d.Machines[1].AttachmentsMatch = &spec.InstanceInfo{}, false
	carryOut(t, &d, o)
	var bridges []string
	for _, g := range carryOut(t, &d, o).Rules.Guests {
		if g.Owner == "m-web" {
			bridges = append(bridges, g.Bridge)
		}
	}
	equalText(t, "the bridges of web", fmt.Sprint(bridges), "[br-wan]")
}
