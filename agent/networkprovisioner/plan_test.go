package networkprovisioner

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/ipam"
)

var t0 = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func policy() Policy { return Policy{Namespace: "ns", Now: t0} }

func lan() spec.Network {
	return spec.Network{Bridge: "br-lan", Addresses: []string{"10.20.0.1/24"}, Forwarding: true, NAT: true, DHCP: true}
}

func network(name string, n spec.Network) Network {
	return Network{Name: name, UID: "u-" + name, Life: state.Alive, Generation: 1, Record: spec.NetworkRecord{Network: n}}
}

func guest(name string, nics map[string]spec.NIC) Machine {
	return Machine{Name: name, UID: "m-" + name, NICs: nics, AttachmentsMatch: true}
}

func on(network, address string) map[string]spec.NIC {
	return map[string]spec.NIC{"eth0": {Network: network, Address: address}}
}

func two() Desired {
	web, db := guest("web", on("lan", "10.20.0.10/24")), guest("db", on("lan", ""))
	web.Publish = []spec.Publish{{Protocol: "tcp", HostPort: 8080, Port: 80}}
	return Desired{Networks: []Network{network("lan", lan())}, Machines: []Machine{web, db}}
}

// carryOut applies plans to the model until a plan has no steps.
func carryOut(t *testing.T, d *Desired, o *Observed) Plan {
	t.Helper()
	for range 5 {
		p := Make(*d, *o, policy())
		steps := slices.Clone(p.Strays)
		for _, n := range p.Networks {
			steps = append(steps, n.Links...)
		}
		for i, n := range d.Networks {
			d.Networks[i].Status = assess(n, p.Networks[i], reconcile.Failure{}, t0)
			if p.Networks[i].DHCP != nil {
				o.Serving, o.Served = map[string]bool{n.UID: true}, map[string]bool{n.UID: true}
			}
		}
		if len(steps) == 0 {
			return p
		}
		for _, s := range steps {
			do(o, s)
		}
	}
	t.Fatal("the plan does not come to an end")
	return Plan{}
}

// do simulates the kernel, as far as bridges are concerned.
func do(o *Observed, s hostnet.Step) {
	at := slices.IndexFunc(o.Host.Links, func(l hostnet.Link) bool { return l.Name == s.Link })
	switch s.Op {
	case hostnet.MakeBridge:
		o.Host.Links = append(o.Host.Links, hostnet.Link{Name: s.Link, Kind: "bridge", Alias: s.Stamp, MAC: s.MAC, MTU: max(s.MTU, 1500)})
	case hostnet.RemoveBridge:
		o.Host.Links = slices.Delete(o.Host.Links, at, at+1)
		o.Host.Addresses = slices.DeleteFunc(o.Host.Addresses, func(a hostnet.Address) bool { return a.Link == s.Link })
		o.Host.Routes = slices.DeleteFunc(o.Host.Routes, func(r hostnet.Route) bool { return r.Link == s.Link })
	case hostnet.RemovePair:
		other := o.Host.Links[at].Pair
		o.Host.Links = slices.DeleteFunc(o.Host.Links, func(l hostnet.Link) bool { return l.Name == s.Link || l.Name == other })
	case hostnet.Rejoin:
		o.Host.Links[at].Master = s.Bridge
	case hostnet.SetUp:
		o.Host.Links[at].Up = true
	case hostnet.StampBridge:
		o.Host.Links[at].Alias = s.Stamp
	case hostnet.SetMAC:
		o.Host.Links[at].MAC = s.MAC
	case hostnet.SetMTU:
		o.Host.Links[at].MTU = s.MTU
	case hostnet.SetReversePath:
		o.Host.Links[at].ReversePath = s.Value
	case hostnet.AddAddress:
		a := *s.Address
		a.Link = s.Link
		if slices.ContainsFunc(o.Host.AddressesOf(s.Link), func(have hostnet.Address) bool { return have.Prefix == a.Prefix }) {
			return
		}
		o.Host.Addresses = append(o.Host.Addresses, a)
		o.Host.Routes = append(o.Host.Routes, hostnet.Route{Link: s.Link, Destination: a.Prefix.Masked(), Source: a.Prefix.Addr(), Table: 254, Protocol: 2})
	case hostnet.DeleteAddress:
		o.Host.Addresses = slices.DeleteFunc(o.Host.Addresses, func(a hostnet.Address) bool { return a.Link == s.Link && a.Prefix == s.Address.Prefix })
		o.Host.Routes = slices.DeleteFunc(o.Host.Routes, func(r hostnet.Route) bool {
			return r.Link == s.Link && r.Destination == s.Address.Prefix.Masked()
		})
	case hostnet.Enslave:
		o.Host.Links[at].Master, o.Host.Links[at].MasterKind = s.Bridge, "bridge"
	case hostnet.Release:
		o.Host.Links[at].Master, o.Host.Links[at].MasterKind = "", ""
	case hostnet.ClaimBridge:
		o.Host.Links[at].Alias = s.Stamp
	case hostnet.AddRoute:
		r := *s.Route
		r.Link = s.Link
		o.Host.Routes = append(o.Host.Routes, r)
	case hostnet.DeleteRoute:
		o.Host.Routes = slices.DeleteFunc(o.Host.Routes, func(r hostnet.Route) bool {
			return r.Link == s.Link && r.Destination == s.Route.Destination && r.Gateway == s.Route.Gateway
		})
	case hostnet.LearnNeighbours, hostnet.TuneBridge:
	default:
		panic(fmt.Sprint("unexpected ", s))
	}
}

func said(p Plan) string {
	var words []string
	for _, n := range p.Networks {
		for _, s := range n.Steps {
			words = append(words, strings.TrimSpace(fmt.Sprintf("%s %s %s: %s; %s %s", s.Action, strings.TrimPrefix(s.Object, "network/"), s.Impact, s.Detail, s.Held, s.Allow)))
		}
	}
	return strings.Join(words, "\n")
}

func equalText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

// N5 N6: a declared network is made, and its guests get declared and free
// addresses. The next plan is empty, and the rules are removed with the
// network.
func TestNetworkIsMadeAndRemoved(t *testing.T) {
	d, o := two(), Observed{}
	equalText(t, "first", said(Make(d, o, policy())), "create lan none: bridge br-lan with 10.20.0.1/24, forwarding, NAT, DHCP;")
	p := carryOut(t, &d, &o)
	equalText(t, "second", said(Make(d, o, policy())), "")
	s := d.Networks[0].Status
	if s.State != stateReady || s.Guests["web/eth0"].Addresses[0] != "10.20.0.10/24" || !s.Guests["web/eth0"].Declared || s.Guests["db/eth0"].Addresses[0] != "10.20.0.2/24" {
		t.Errorf("%+v", s)
	}
	if len(p.Rules.Publish) != 1 || p.Rules.Publish[0].Address.String() != "10.20.0.10" || len(p.Rules.Guests) != 2 {
		t.Errorf("%+v", p.Rules)
	}
	var names []string
	for _, each := range p.Parameters {
		names = append(names, each.Name+"="+each.Value)
	}
	equalText(t, "parameters", strings.Join(names, " "), "net/ipv4/conf/br-lan/route_localnet=1 net/ipv4/ip_forward=1")

	// The network is removed after its machines.
	d.Networks[0].Life = state.Dying
	for i := range d.Machines {
		d.Machines[i].Dying, d.Machines[i].Status.Instance = true, &spec.InstanceInfo{}
	}
	if p := Make(d, o, policy()); linkSteps(p) != 0 || p.Networks[0].Waiting != "waiting for machine/db to detach" {
		t.Errorf("%+v", p.Networks[0])
	}
	d.Machines = nil
	o.Serving, o.Served = nil, nil
	carryOut(t, &d, &o)
	p = Make(d, o, policy())
	if len(o.Host.Links) != 0 || !p.Networks[0].Gone || len(p.Rules.Networks) != 0 || len(p.Parameters) != 0 {
		t.Errorf("%+v %+v", o.Host.Links, p)
	}
}

// A6 A7: addresses are kept, and rest after their machine is gone. An exhausted
// subnet is reported and does not affect owners of addresses.
func TestAddressesAreKept(t *testing.T) {
	small := lan()
	small.Addresses, small.DHCP = []string{"10.20.0.1/29"}, false // .2 to .6
	d, o := Desired{Networks: []Network{network("lan", small)}}, Observed{}
	for i := range 5 {
		d.Machines = append(d.Machines, guest(fmt.Sprintf("g%d", i), on("lan", "")))
	}
	carryOut(t, &d, &o)
	had := d.Networks[0].Status.Guests["g0/eth0"]
	d.Machines = append(d.Machines[1:], guest("late", on("lan", "")))
	carryOut(t, &d, &o)
	s := d.Networks[0].Status
	if s.Guests["g0/eth0"].Released == nil || s.Guests["late/eth0"].MAC != "" || !strings.Contains(s.Message, "10.20.0.0/29") || s.State != stateReady {
		t.Errorf("%+v", s)
	}
	later := policy()
	later.Now = t0.Add(ipam.Quarantine + time.Second)
	if got := Make(d, o, later).Networks[0].Guests["late/eth0"]; !slices.Equal(got.Addresses, had.Addresses) {
		t.Errorf("after its rest the address is not given: %+v", got)
	}
	// A machine of the same name gets the address back, with another MAC.
	again := guest("g0", on("lan", ""))
	again.UID = "another"
	d.Machines[len(d.Machines)-1] = again
	if got := Make(d, o, policy()).Networks[0].Guests["g0/eth0"]; !slices.Equal(got.Addresses, had.Addresses) || got.MAC == had.MAC || got.Released != nil {
		t.Errorf("%+v, had %+v", got, had)
	}
}

// After the loss of a store, a guest keeps the address that is observed on it.
func TestLostRecordOfAnAddress(t *testing.T) {
	d := two()
	d.Machines[1].Addresses = []netip.Addr{netip.MustParseAddr("10.20.0.77"), netip.MustParseAddr("192.0.2.1")}
	if got := Make(d, Observed{}, policy()).Networks[0].Guests["db/eth0"].Addresses; !slices.Equal(got, []string{"10.20.0.77/24"}) {
		t.Error(got)
	}
}

// Changes that cut off guests wait for permission; until then everything stays
// as before.
func TestChangesThatCutOffGuestsAreHeld(t *testing.T) {
	d, o := two(), Observed{}
	carryOut(t, &d, &o)
	for i := range d.Machines {
		d.Machines[i].Status.Instance = &spec.InstanceInfo{}
	}
	n := &d.Networks[0]
	n.Generation, n.Record.Network.Bridge, n.Record.Network.MTU = 2, "br-new", 1400
	equalText(t, "held", said(Make(d, o, policy())), "update lan restart: changing bridge cuts off machine/db, machine/web; --allow restart restart")
	p := carryOut(t, &d, &o)
	if _, there := o.Host.Link("br-new"); there || p.Rules.Networks[0].Bridge != "br-lan" || n.Status.State != stateReady || n.Status.Applied.Bridge != "br-lan" {
		t.Errorf("done unasked: %+v", n.Status)
	}
	n.Record.Allow = []string{"restart"}
	equalText(t, "allowed", said(Make(d, o, policy())), "update lan restart: changing bridge cuts off machine/db, machine/web;")
	o.Host.Links = append(o.Host.Links, hostnet.Link{Name: "veth1", Kind: "veth", Master: "br-lan", MasterKind: "bridge"})
	carryOut(t, &d, &o)
	if _, there := o.Host.Link("br-lan"); !there || n.Status.Applied.Bridge != "br-new" {
		t.Errorf("the old bridge must stay until its guests have moved: %+v", o.Host.Links)
	}
	o.Host.Links = slices.DeleteFunc(o.Host.Links, func(l hostnet.Link) bool { return l.Name == "veth1" })
	carryOut(t, &d, &o)
	if len(o.Host.Links) != 1 || o.Host.Links[0].Name != "br-new" {
		t.Errorf("%+v", o.Host.Links)
	}
}

// An MTU that is no longer declared returns to the kernel's default, once.
func TestRemovedMTUReturnsToTheDefault(t *testing.T) {
	d, o := two(), Observed{}
	n := &d.Networks[0]
	n.Record.Network.MTU = 1400
	carryOut(t, &d, &o)
	n.Generation, n.Record.Network.MTU = 2, 0
	equalText(t, "plan", said(Make(d, o, policy())), "update lan live: changes mtu;")
	p := carryOut(t, &d, &o)
	if l, _ := o.Host.Link("br-lan"); l.MTU != 1500 || linkSteps(p) != 0 || n.Status.Applied.MTU != 0 {
		t.Errorf("%+v %+v", l, n.Status.Applied)
	}
	o.Host.Links[0].MTU = 1300 // as the kernel adapts it to the bridge's ports
	if p := Make(d, o, policy()); linkSteps(p) != 0 {
		t.Errorf("%v", p.Networks[0].Links)
	}
}

// A subnet that the host reaches over another link is refused; foreign bridges
// with the declared name are not touched.
func TestSubnetOverAnotherLinkIsRefused(t *testing.T) {
	d := two()
	o := Observed{Host: hostnet.Observed{
		Links:  []hostnet.Link{{Name: "eth1", Up: true}},
		Routes: []hostnet.Route{{Link: "eth1", Destination: netip.MustParsePrefix("10.20.0.0/16"), Table: 254}},
	}}
	p := carryOut(t, &d, &o)
	if len(o.Host.Links) != 1 || d.Networks[0].Status.State != stateError || !strings.Contains(said(p), "10.20.0.0/16 over eth1") {
		t.Errorf("%+v\n%s", d.Networks[0].Status, said(p))
	}
	d, o = two(), Observed{Host: hostnet.Observed{Links: []hostnet.Link{{Name: "br-lan", Kind: "bridge", Up: true}}}}
	carryOut(t, &d, &o)
	if d.Networks[0].Status.State != stateError || !strings.Contains(d.Networks[0].Status.Message, "not hostler's") {
		t.Errorf("%+v", d.Networks[0].Status)
	}
}

// A port at which a process of the host listens is not published, unless it was
// published before.
func TestPortInUseOnTheHostIsNotPublished(t *testing.T) {
	d, o := two(), Observed{Listening: map[string]bool{"tcp/8080": true}}
	p := carryOut(t, &d, &o)
	if len(p.Rules.Publish) != 0 || !strings.Contains(d.Networks[0].Status.Message, "port 8080") {
		t.Errorf("%+v", d.Networks[0].Status)
	}
	o.Listening = nil
	carryOut(t, &d, &o)
	o.Listening = map[string]bool{"tcp/8080": true}
	if p := carryOut(t, &d, &o); len(p.Rules.Publish) != 1 {
		t.Error("a process that came later takes a published port away")
	}
}

// An undeclared bridge of ours is removed only if the policy sweeps unknown
// objects, and never while a guest is on it.
func TestUnknownBridges(t *testing.T) {
	stray := hostnet.Link{Name: "br-old", Kind: "bridge", Alias: hostnet.Stamp("ns", "gone")}
	o := Observed{Host: hostnet.Observed{Links: []hostnet.Link{stray}}}
	sweep := policy()
	sweep.Sweep = true
	if p := Make(Desired{}, o, policy()); linkSteps(p) != 0 || !slices.Equal(p.Unknown, []string{"br-old"}) {
		t.Errorf("%+v", p)
	}
	if p := Make(Desired{}, o, sweep); linkSteps(p) != 1 {
		t.Errorf("%+v", p)
	}
	o.Host.Links = append(o.Host.Links, hostnet.Link{Name: "veth1", Kind: "veth", Master: "br-old", MasterKind: "bridge"})
	if p := Make(Desired{}, o, sweep); linkSteps(p) != 0 {
		t.Errorf("%+v", p)
	}
}

// The DHCP ranges leave room for declared guests and exclude the host's
// addresses.
func TestDHCPRangesExcludeDeclaredAndHostAddresses(t *testing.T) {
	for own, want := range map[string]string{
		"10.20.0.1/24": "10.20.0.192-10.20.0.254", "10.20.0.254/24": "10.20.0.192-10.20.0.253", "10.20.0.200/24": "10.20.0.201-10.20.0.254",
		"10.20.0.1/30": "10.20.0.2-10.20.0.2", "10.20.0.1/8": "10.192.0.0-10.255.255.254", "fd00::1/64": "fd00::1:0-fd00::1:ffff", "fd00::1/120": "fd00::c0-fd00::ff",
	} {
		all, _ := ranges([]netip.Prefix{netip.MustParsePrefix(own)})
		if len(all) != 1 || all[0].First.String()+"-"+all[0].Last.String() != want {
			t.Errorf("%s: %v, want %s", own, all, want)
		}
	}
}

// linkSteps returns the number of link steps in the plan.
func linkSteps(p Plan) int {
	n := len(p.Strays)
	for _, each := range p.Networks {
		n += len(each.Links)
	}
	return n
}
