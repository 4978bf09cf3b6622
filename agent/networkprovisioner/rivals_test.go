package networkprovisioner

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
)

// renamed returns a host with the network lan and the machine web on it, and a
// declaration that renames both the network and the machine's interface to
// lan2.
func renamed(t *testing.T) (Desired, Observed) {
	t.Helper()
	d, o := two(), Observed{}
	carryOut(t, &d, &o)
	d.Networks[0].Life = state.Dying
	d.Networks = append(d.Networks, network("lan2", lan()))
	for i := range d.Machines {
		g := &d.Machines[i]
		g.Status.Instance, g.AttachmentsMatch = &spec.InstanceInfo{}, false
		g.Addresses = []netip.Addr{netip.MustParseAddr([]string{"10.20.0.10", "10.20.0.2"}[i])}
		g.NICs = on("lan2", g.NICs["eth0"].Address)
	}
	return d, o
}

// A renamed network continues under its new name immediately, with the bridge,
// the rules and its machines' addresses.
func TestANetworkIsRenamed(t *testing.T) {
	d, o := renamed(t)
	p := Make(d, o, policy())
	if err := p.Rules.Check(); err != nil {
		t.Fatal(err)
	}
	equalText(t, "the plan", said(p), "delete lan destroy: bridge br-lan, which network/lan2 takes over;\ncreate lan2 none: bridge br-lan with 10.20.0.1/24, forwarding, NAT, DHCP;")
	o.Served = nil
	p = carryOut(t, &d, &o)
	o.Served = nil // lan's server is gone too
	p = Make(d, o, policy())
	lan2 := d.Networks[1].Status
	if len(o.Host.Links) != 1 || !p.Networks[0].Gone || lan2.State != stateReady || len(p.Rules.Networks) != 1 || p.Rules.Networks[0].Owner != "u-lan2" {
		t.Errorf("%+v\n%+v\n%+v", o.Host.Links, p.Networks[0], lan2)
	}
	for k, address := range map[string]string{"web/eth0": "10.20.0.10/24", "db/eth0": "10.20.0.2/24"} {
		if g := lan2.Guests[k]; len(g.Addresses) != 1 || g.Addresses[0] != address {
			t.Errorf("%s: %+v", k, g)
		}
	}
	if len(p.Rules.Publish) != 1 {
		t.Errorf("published: %+v", p.Rules.Publish)
	}
}

// A network cannot take the subnet of the NIC that it gives back: afterwards the
// host would reach the subnet over the NIC, and the next plan would take the NIC
// again.
func TestSubnetOfAReturnedNICIsRefused(t *testing.T) {
	o := overNIC()
	o.Host.Links[0].Alias = hostnet.Stamp("ns", "u-lan")
	was := spec.Network{Bridge: "br-lan", Interfaces: []string{"eth0"}}
	had := hostnet.NICSettings{MAC: "52:54:00:00:00:01", MTU: 1500, Addresses: []hostnet.Address{{Prefix: netip.MustParsePrefix("192.0.2.10/24")}}}
	n := network("lan", spec.Network{Bridge: "br-lan", Addresses: []string{"192.0.2.1/24"}})
	n.Status = spec.NetworkStatus{State: stateReady, Applied: &was, NICSettings: map[string]json.RawMessage{"eth0": spec.Encode(had)}}
	p := Make(Desired{Networks: []Network{n}}, o, policy()).Networks[0]
	if len(p.Errs) != 1 || !strings.Contains(p.Errs[0].Error(), "192.0.2.0/24 over eth0") || !slices.Contains(p.Is.Interfaces, "eth0") {
		t.Errorf("%v, is %+v", p.Errs, p.Is)
	}
}

// The same for a NIC of another network, which has the host's addresses until it
// gives the NIC back.
func TestSubnetOfAnotherNetworksNICIsRefused(t *testing.T) {
	was := spec.Network{Bridge: "br-old", Interfaces: []string{"eth0"}}
	had := hostnet.NICSettings{MAC: "52:54:00:00:00:01", MTU: 1500, Addresses: []hostnet.Address{{Prefix: netip.MustParsePrefix("192.0.2.10/24")}}}
	o := overNIC()
	o.Host.Links[0].Name, o.Host.Links[0].Alias = "br-old", hostnet.Stamp("ns", "u-old")
	for _, life := range []state.Life{state.Alive, state.Dying} {
		old := network("old", was)
		old.Life = life
		old.Status = spec.NetworkStatus{State: stateReady, Applied: &was, NICSettings: map[string]json.RawMessage{"eth0": spec.Encode(had)}}
		d := Desired{Networks: []Network{old, network("lan", spec.Network{Bridge: "br-lan", Addresses: []string{"192.0.2.1/24"}})}}
		p := Make(d, o, policy()).Networks[1]
		if len(p.Errs) != 1 || !strings.Contains(p.Errs[0].Error(), "192.0.2.0/24 over eth0") {
			t.Errorf("%s: %v", life, p.Errs)
		}
		if err := Refuse(d, o, policy(), map[string]bool{"network/lan": true}); err == nil {
			t.Errorf("%s: Refuse returns nil", life)
		}
	}
}

// A NIC that is no longer on the host can be replaced by another, and a network
// with its own address in the NIC's subnet can move to another NIC.
func TestANICIsReplaced(t *testing.T) {
	had := hostnet.NICSettings{MAC: "52:54:00:00:00:01", MTU: 1500, Addresses: []hostnet.Address{{Prefix: netip.MustParsePrefix("192.0.2.10/24")}}}
	for name, c := range map[string]struct {
		nics      []string
		was, want string
	}{
		"gone, other address": {[]string{"eth1"}, "192.0.2.1/24", "192.0.2.2/24"},
		"gone, same address":  {[]string{"eth1"}, "192.0.2.1/24", "192.0.2.1/24"},
		"there, same address": {[]string{"eth0", "eth1"}, "192.0.2.1/24", "192.0.2.1/24"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{Host: hostnet.Observed{Links: []hostnet.Link{{Name: "br-lan", Kind: "bridge", Alias: hostnet.Stamp("ns", "u-lan"), Up: true, MTU: 1500}}}}
			for _, nic := range c.nics {
				o.Host.Links = append(o.Host.Links, hostnet.Link{Name: nic, Up: true, MTU: 1500, MAC: "52:54:00:00:00:0" + nic[3:]})
			}
			n := network("lan", spec.Network{Bridge: "br-lan", Addresses: []string{c.want}, Interfaces: []string{"eth1"}})
			n.Status = spec.NetworkStatus{
				State: stateReady, Applied: &spec.Network{Bridge: "br-lan", Addresses: []string{c.was}, Interfaces: []string{"eth0"}},
				NICSettings: map[string]json.RawMessage{"eth0": spec.Encode(had)},
			}
			if err := Refuse(Desired{Networks: []Network{n}}, o, policy(), map[string]bool{"network/lan": true}); err != nil {
				t.Error(err)
			}
		})
	}
}

// The NIC's original settings pass with the bridge to the new name.
func TestANetworkOverANICIsRenamed(t *testing.T) {
	o := overNIC()
	o.Host.Links[0].Alias = hostnet.Stamp("ns", "u-up")
	had := hostnet.NICSettings{MAC: "52:54:00:00:00:01", MTU: 1500, Addresses: []hostnet.Address{{Prefix: netip.MustParsePrefix("192.0.2.10/24")}}}
	is := spec.Network{Bridge: "br-lan", Interfaces: []string{"eth0"}}
	d := Desired{Networks: []Network{network("up", is), network("out", is)}}
	d.Networks[0].Life = state.Dying
	d.Networks[0].Status = spec.NetworkStatus{State: stateReady, Applied: &is, NICSettings: map[string]json.RawMessage{"eth0": spec.Encode(had)}}
	p := Make(d, o, policy())
	if len(p.Networks[0].NICSettings) != 0 || p.Networks[1].NICSettings["eth0"].MAC != had.MAC || len(p.Networks[0].Links) != 0 {
		t.Errorf("%+v\n%+v", p.Networks[0], p.Networks[1])
	}
	for _, s := range p.Networks[1].Links {
		if s.Op == hostnet.Release || s.Op == hostnet.DeleteAddress {
			t.Errorf("the host's connection is cut: %s", s)
		}
	}
}

// The DHCP servers of both names want the same bridge; the old server ends
// first.
func TestTheServerOfARenamedNetwork(t *testing.T) {
	for _, name := range []string{"a-lan", "z-lan"} {
		r := newRig(t, Observed{})
		r.declare("lan", lan())
		r.pass()
		r.write(state.Write{ID: state.ID{Kind: spec.KindNetwork, Name: "lan"}, Revision: state.AnyRevision, Life: state.Dying})
		r.declare(name, lan())
		r.pass()
		if s, _ := r.status(name); s.State != stateReady || len(r.servers) != 1 {
			t.Errorf("%s: %+v, servers %v", name, s, r.servers)
		}
		r.pass()
		if _, there := r.status("lan"); there {
			t.Errorf("lan stays beside %s", name)
		}
	}
}

// Two networks that want the same bridge do not affect others: the network that
// has the bridge keeps it, and the other gets an error.
func TestTwoNetworksWantOneBridge(t *testing.T) {
	r := newRig(t, Observed{})
	plain := func(bridge, address string) spec.Network {
		return spec.Network{Bridge: bridge, Addresses: []string{address}}
	}
	r.declare("lan", plain("br-lan", "10.20.0.1/24"))
	r.declare("other", plain("br-other", "10.21.0.1/24"))
	r.pass()
	r.declare("also", plain("br-lan", "10.22.0.1/24"))
	r.declare("later", plain("br-later", "10.23.0.1/24"))
	r.pass()
	for _, name := range []string{"lan", "other", "later"} {
		if s, _ := r.status(name); s.State != stateReady {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s, _ := r.status("also"); s.State != stateError || !strings.Contains(s.Message, "network/lan uses it") {
		t.Errorf("%+v", s)
	}
	if l, _ := r.o.Host.Link("br-lan"); len(r.rules.Networks) != 3 || len(r.o.Host.AddressesOf("br-lan")) != 1 || !strings.HasPrefix(l.Alias, "hostler:ns:") {
		t.Errorf("%+v %+v", r.rules.Networks, r.o.Host)
	}
	// A network on its own bridge that wants the other's bridge stays where it
	// is.
	d := Desired{Networks: []Network{network("lan", plain("br-lan", "10.20.0.1/24")), network("other", plain("br-other", "10.21.0.1/24"))}}
	o := Observed{}
	carryOut(t, &d, &o)
	d.Networks[0].Record.Network.Bridge = "br-other"
	carryOut(t, &d, &o)
	if len(o.Host.Links) != 2 || d.Networks[0].Status.State != stateError || d.Networks[0].Status.Applied.Bridge != "br-lan" || d.Networks[1].Status.State != stateReady {
		t.Errorf("%+v\n%+v", o.Host.Links, d.Networks)
	}
}
