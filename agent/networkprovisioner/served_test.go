package networkprovisioner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/hostnet"
	"hostler/hostnet/dhcp"
)

// N12: a server gets the index of the current bridge in the same pass that made
// or recreated the bridge. The restart is not mistaken for a crash.
func TestTheServerOfABridgeMadeAgain(t *testing.T) {
	r := newRig(t, Observed{})
	r.declare("lan", lan())
	uid := func() string {
		for uid := range r.servers {
			return uid
		}
		return ""
	}
	number := func() int {
		l, _ := r.o.Host.Link("br-lan")
		return l.Index
	}
	r.pass()
	first := number()
	if first == 0 || r.bound[uid()] != first {
		t.Fatalf("the bridge is %d, its server was told %d", first, r.bound[uid()])
	}
	r.pass()
	r.o.Host.Links, r.o.Host.Addresses, r.o.Host.Routes = nil, nil, nil
	r.pass()
	if now := number(); now == first || r.bound[uid()] != now {
		t.Errorf("the bridge was %d and is %d, its server was told %d", first, now, r.bound[uid()])
	}
	if told := r.events("lan"); slices.Contains(told, "dnsmasq had ended and is started again") || !strings.HasPrefix(told[len(told)-1], "make bridge br-lan; ") {
		t.Errorf("told %q", told)
	}
}

// N12: a guest is put back under the bridge that its instance names, if it has
// an entry on that bridge's network.
func TestGuestsOfABridgeMadeAgain(t *testing.T) {
	d, o := two(), Observed{}
	carryOut(t, &d, &o)
	d.Machines[0].Status.Ports = map[string]spec.Port{"eth0": {Device: "veth1", Bridge: "br-lan"}, "extra0": {Device: "veth2", Bridge: "br-lan"}}
	d.Machines[1].Status.Ports = map[string]spec.Port{"eth0": {Device: "veth3", Bridge: "br-old"}} // it moves when it starts again
	for _, name := range []string{"veth1", "veth2", "veth3"} {
		o.Host.Links = append(o.Host.Links, hostnet.Link{Name: name, Kind: "veth", Up: true, Carrier: true, MTU: 1500})
	}
	equalText(t, "off the bridge", said(Make(d, o, policy())), "update lan live: put veth1 of a guest back under br-lan;")
	o.Host.Links = slices.DeleteFunc(o.Host.Links, func(l hostnet.Link) bool { return l.Name == "br-lan" })
	o.Host.Addresses, o.Host.Routes = nil, nil
	p := carryOut(t, &d, &o)
	for _, l := range o.Host.Links {
		if want := l.Name == "veth1"; (l.Master == "br-lan") != want {
			t.Errorf("%s is under %q", l.Name, l.Master)
		}
	}
	equalText(t, "afterwards", said(p), "")
}

// A guest whose instance has moved to another network stays there, also while the machine's
// status still shows the former bridge: it is written when the machine is ready, which
// needs the new network.
func TestAGuestThatMovedIsNotPutBack(t *testing.T) {
	d, o := two(), Observed{}
	wan := network("wan", spec.Network{Bridge: "br-wan", Addresses: []string{"10.30.0.1/24"}})
	d.Networks = append(d.Networks, wan)
	web := &d.Machines[0]
	web.Status.Instance, web.Status.UsesNICs = &spec.InstanceInfo{}, []string{"network/lan/eth0"}
	web.Status.Ports = map[string]spec.Port{"eth0": {Device: "veth1", Bridge: "br-lan"}}
	o.Host.Links = append(o.Host.Links, hostnet.Link{Name: "veth1", Kind: "veth", Up: true, Carrier: true, MTU: 1500})
	carryOut(t, &d, &o)
	web.NICs, web.AttachmentsMatch = on("wan", ""), false
	for _, bridge := range []string{"br-wan", "br-lan"} { // after its move, and before it
		o.Host.Links[slices.IndexFunc(o.Host.Links, func(l hostnet.Link) bool { return l.Name == "veth1" })].Master = bridge
		carryOut(t, &d, &o)
		if l, _ := o.Host.Link("veth1"); l.Master != bridge {
			t.Errorf("from %s it was put under %s", bridge, l.Master)
		}
	}
	for i := range o.Host.Links {
		if o.Host.Links[i].Name == "veth1" {
			o.Host.Links[i].Master = ""
		}
	}
	carryOut(t, &d, &o)
	if l, _ := o.Host.Link("veth1"); l.Master != "br-lan" {
		t.Errorf("from no bridge it was put under %q, and the hypervisor names br-lan", l.Master)
	}
}

// The end of DHCP takes the guests' addresses and name server, so it waits as well.
// Its begin cuts off no guest.
func TestTheEndOfDHCPIsHeld(t *testing.T) {
	d, o := two(), Observed{}
	carryOut(t, &d, &o)
	for i := range d.Machines {
		d.Machines[i].Status.Instance = &spec.InstanceInfo{}
	}
	n := &d.Networks[0]
	n.Generation, n.Record.Network.DHCP = 2, false
	equalText(t, "held", said(Make(d, o, policy())), "update lan restart: changing dhcp cuts off machine/db, machine/web; --allow restart restart")
	if p := carryOut(t, &d, &o); p.Networks[0].DHCP == nil || !n.Status.Applied.DHCP {
		t.Errorf("done unasked: %+v", n.Status)
	}
	n.Record.Allow = []string{"restart"}
	if p := carryOut(t, &d, &o); p.Networks[0].DHCP != nil || n.Status.Applied.DHCP {
		t.Errorf("not done although it is allowed: %+v", n.Status)
	}
	n.Generation, n.Record.Allow, n.Record.Network.DHCP = 3, nil, true
	equalText(t, "on again", said(Make(d, o, policy())), "update lan live: changes dhcp;")
}

// A guest's name leads to the address that the instance has. While the restart for
// another address awaits permission, that is the former one. DHCP offers the new one,
// which the guest takes when it starts.
func TestNamesLeadToTheInstance(t *testing.T) {
	d, o := two(), Observed{}
	carryOut(t, &d, &o)
	web := &d.Machines[0]
	web.NICs, web.AttachmentsMatch = on("lan", "10.20.0.11/24"), false
	web.Status.Instance, web.Status.UsesNICs = &spec.InstanceInfo{}, []string{"network/lan/eth0"}
	for what, c := range map[string]struct {
		has     []netip.Addr
		matches bool
		named   []netip.Addr
	}{
		"nothing is known of the guest": {},
		"the restart waits":             {[]netip.Addr{netip.MustParseAddr("10.20.0.10"), netip.MustParseAddr("fe80::1")}, false, []netip.Addr{netip.MustParseAddr("10.20.0.10")}},
		"restarted":                     {has: []netip.Addr{netip.MustParseAddr("10.20.0.11")}},
		"as declared":                   {has: []netip.Addr{netip.MustParseAddr("10.20.0.10")}, matches: true},
	} {
		web.Addresses, web.AttachmentsMatch = c.has, c.matches
		hosts := carryOut(t, &d, &o).Networks[0].DHCP.Hosts
		at := slices.IndexFunc(hosts, func(h dhcp.Host) bool { return h.Name == "web" })
		if len(hosts) != 2 || !slices.Equal(hosts[at].Addresses, []netip.Addr{netip.MustParseAddr("10.20.0.11")}) || !slices.Equal(hosts[at].Named, c.named) {
			t.Errorf("%s: %+v", what, hosts)
		}
	}
}
