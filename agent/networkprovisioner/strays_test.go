package networkprovisioner

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/firewall"
	"hostler/internal/fault"
	"hostler/sysctl"
)

// strayOf returns a host with an undeclared bridge of ours, as after the loss
// of a store, with the port under it.
func strayOf(port hostnet.Link) Observed {
	port.Master, port.MasterKind = "br-lan", "bridge"
	return Observed{Host: hostnet.Observed{Links: []hostnet.Link{
		{Name: "br-lan", Kind: "bridge", Alias: hostnet.Stamp("ns", "lost"), Up: true, MTU: 1500}, port,
	}}}
}

// overNIC returns such a bridge over the host's NIC, with the host's address
// and default route.
func overNIC() Observed {
	o := strayOf(hostnet.Link{Name: "eth0", MAC: "52:54:00:00:00:01", MTU: 1500, Up: true})
	o.Host.Addresses = []hostnet.Address{{Link: "br-lan", Prefix: netip.MustParsePrefix("192.0.2.10/24")}}
	o.Host.Routes = []hostnet.Route{{Link: "br-lan", Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1"), Table: 254}}
	return o
}

// P24: the bridge with the host's own network stays under every harvest mode,
// even while its NIC is unplugged.
func TestTheHostsOwnBridgeIsNotSwept(t *testing.T) {
	sweep := policy()
	sweep.Sweep = true
	cases := map[string]Observed{"over a NIC": overNIC(), "over a bond": strayOf(hostnet.Link{Name: "bond0", Kind: "bond"})}
	way := overNIC()
	way.Host.Links = way.Host.Links[:1]
	cases["the way out"] = way
	lease := strayOf(hostnet.Link{})
	lease.Host.Links = lease.Host.Links[:1]
	lease.Host.Addresses = []hostnet.Address{{Link: "br-lan", Prefix: netip.MustParsePrefix("192.0.2.10/24"), Valid: 600}}
	cases["a lease"] = lease
	persistent := strayOf(hostnet.Link{})
	persistent.Host.Links = persistent.Host.Links[:1]
	persistent.Own.Persistent = []string{"br-lan"}
	cases["made at the host's start"] = persistent
	for name, o := range cases {
		for _, d := range []Desired{{}, {Networks: []Network{network("other", lan())}}} {
			for i := range d.Networks {
				d.Networks[i].Record.Network.Bridge = "br-other"
			}
			p := Make(d, o, sweep)
			if len(p.Strays) != 0 || !slices.Equal(p.Unknown, []string{"br-lan"}) {
				t.Errorf("%s: swept by %v, unknown are %v", name, p.Strays, p.Unknown)
			}
			for _, n := range p.Networks {
				for _, s := range n.Links {
					if s.Link != "br-other" {
						t.Errorf("%s: another network takes the step: %s", name, s)
					}
				}
			}
		}
		if text := unknownBridge(o, "br-lan"); strings.Contains(text, "ip link delete") || !strings.Contains(text, "declare") {
			t.Errorf("%s: a person is told: %s", name, text)
		}
	}
	equalText(t, "told", unknownBridge(overNIC(), "br-lan"), "the bridge br-lan carries the host's own network and has this agent's stamp but no declaration, so it is not changed; "+
		"declare its network again, with `interfaces: [eth0]`; to remove it, delete that network afterwards, which gives eth0 the bridge's addresses and routes back")
}

// A DHCP server stays as long as its guests' bridge.
func TestTheServerOfAnUnknownBridge(t *testing.T) {
	sweep := policy()
	sweep.Sweep = true
	o := strayOf(hostnet.Link{Name: "veth1", Kind: "veth"})
	o.Served = map[string]bool{"lost": true}
	if p := Make(Desired{}, o, sweep); len(p.Orphans) != 0 {
		t.Errorf("the server of a bridge with guests goes: %v", p.Orphans)
	}
	o.Host.Links = o.Host.Links[:1]
	if p := Make(Desired{}, o, sweep); len(p.Strays) != 1 || !slices.Equal(p.Orphans, []string{"lost"}) {
		t.Errorf("%v %v", p.Strays, p.Orphans)
	}
}

// The status has a notice about such a bridge even if no network is declared.
func TestAnUnknownBridgeHasANotice(t *testing.T) {
	r := newRig(t, overNIC())
	r.worker.policy.Sweep = true
	r.pass()
	if len(r.applied) != 0 || r.notices["bridge br-lan"] == "" {
		t.Errorf("done: %v; told: %v", r.applied, r.notices)
	}
	r.o.Host.Links = r.o.Host.Links[1:]
	r.pass()
	if len(r.notices) != 0 {
		t.Errorf("told of what is gone: %v", r.notices)
	}
}

// The boot files of an unknown bridge stay, whatever else is declared. The boot
// files of a bridge that is gone, or that the host's NIC has left, are removed.
func TestAnUnknownBridgeKeepsItsBootFiles(t *testing.T) {
	for name, alias := range map[string]string{"stamped": hostnet.Stamp("ns", "lost"), "made again by the host's start": ""} {
		o := overNIC()
		o.Host.Links[0].Alias = alias
		o.Own.Persistent = []string{"br-gone", "br-lan"}
		r := newRig(t, o)
		r.declare("other", spec.Network{Bridge: "br-other", Addresses: []string{"10.9.0.1/24"}})
		r.pass()
		if !slices.Equal(r.dropped, []string{"br-gone"}) {
			t.Errorf("%s: dropped %v", name, r.dropped)
		}
		if s, _ := r.status("other"); s.State != stateReady {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// If the host's NIC cannot leave the bridge, the bridge keeps its boot files.
func TestABridgeThatANICCannotLeaveKeepsItsBootFiles(t *testing.T) {
	o := overNIC()
	o.Own.Persistent = []string{"br-lan"}
	r := newRig(t, o)
	r.write(state.Write{
		ID: state.ID{Kind: spec.KindNetwork, Name: "lan"}, UID: "lost", Life: state.Dying,
		Spec:   spec.Encode(spec.NetworkRecord{Network: spec.Network{Bridge: "br-lan", Interfaces: []string{"eth0"}}}),
		Status: spec.Encode(spec.NetworkStatus{State: stateReady, Applied: &spec.Network{Bridge: "br-lan", Interfaces: []string{"eth0"}}}),
	})
	r.fails["eth0"] = fault.New(fault.Transient, "cannot reach the host any more")
	r.pass()
	if s, _ := r.status("lan"); len(r.dropped) != 0 || !strings.Contains(s.Message, "cannot reach") {
		t.Errorf("dropped %v: %s", r.dropped, s.Message)
	}
	r.fails = nil
	r.o.Host.Links = r.o.Host.Links[1:]
	r.o.Host.Links[0].Master = ""
	r.now = r.now.Add(time.Hour)
	r.pass()
	if _, there := r.status("lan"); there || !slices.Equal(r.dropped, []string{"br-lan"}) {
		t.Errorf("dropped %v", r.dropped)
	}
}

// A deleted network whose bridge would still be recreated at boot is not
// forgotten: the error is reported, and the removal is retried when due.
func TestADeletedNetworkKeepsItsRecordUntilItsBootFilesAreGone(t *testing.T) {
	r := newRig(t, Observed{})
	r.write(state.Write{
		ID: state.ID{Kind: spec.KindNetwork, Name: "lan"}, UID: "u-lan", Life: state.Dying,
		Spec:   spec.Encode(spec.NetworkRecord{Network: spec.Network{Bridge: "br-lan", Interfaces: []string{"eth0"}}}),
		Status: spec.Encode(spec.NetworkStatus{State: stateReady, Applied: &spec.Network{Bridge: "br-lan", Interfaces: []string{"eth0"}}}),
	})
	r.o.Own.Persistent, r.persistErr = []string{"br-lan"}, fault.New(fault.Transient, "cannot remove the files: the disk is read-only")
	next := r.pass()
	if s, there := r.status("lan"); !there || s.State != stateDying || !strings.Contains(s.Message, "read-only") || !next.After(r.now) {
		t.Fatalf("there is %v: %+v, next at %v", there, s, next)
	}
	r.persistErr = nil
	r.pass()
	if _, there := r.status("lan"); !there || len(r.dropped) > 0 {
		t.Errorf("there is %v, dropped %v before it was due", there, r.dropped)
	}
	r.now = next
	r.pass()
	if _, there := r.status("lan"); there || !slices.Equal(r.dropped, []string{"br-lan"}) {
		t.Errorf("there is %v, dropped %v", there, r.dropped)
	}
}

// The guests of a network whose record is lost keep their forwarding until its
// bridge is gone, whatever else is declared.
func TestTheRulesOfAnUnknownBridge(t *testing.T) {
	o := strayOf(hostnet.Link{Name: "veth1", Kind: "veth"})
	o.Host.Addresses = []hostnet.Address{{Link: "br-lan", Prefix: netip.MustParsePrefix("10.20.0.1/24")}}
	r := newRig(t, o)
	was := firewall.Network{Owner: "lost", Bridge: "br-lan", Subnets: []netip.Prefix{netip.MustParsePrefix("10.20.0.1/24")}, Forward: true, NAT: true}
	r.rules.Networks = []firewall.Network{was}
	r.pass() // before anything is declared
	r.declare("other", plain("br-other", "10.9.0.1/24"))
	for range 2 {
		r.pass()
		if len(r.rules.Networks) != 2 || !reflect.DeepEqual(r.rules.Networks[1], was) {
			t.Fatalf("%+v", r.rules.Networks)
		}
		if s := r.settings[ownerNetworks]; len(s) != 1 || s[0].Name != forwarding4 || s[0].Value != "1" {
			t.Errorf("%+v", s)
		}
	}
	r.o.Host.Links = slices.DeleteFunc(r.o.Host.Links, func(l hostnet.Link) bool { return l.Name != "br-other" })
	r.pass()
	if len(r.rules.Networks) != 1 || len(r.settings[ownerNetworks]) != 0 {
		t.Errorf("%+v %+v", r.rules.Networks, r.settings)
	}
	// If no network is declared, the rules are removed with the last such
	// bridge.
	r = newRig(t, o)
	r.rules.Networks = []firewall.Network{was}
	r.settings[ownerNetworks] = []sysctl.Setting{{Name: forwarding4, Value: "1"}}
	r.pass()
	if len(r.rules.Networks) != 1 || len(r.settings[ownerNetworks]) != 1 {
		t.Errorf("taken from under guests: %+v %+v", r.rules.Networks, r.settings)
	}
	r.o.Host = hostnet.Observed{}
	r.pass()
	if len(r.rules.Networks) != 0 || len(r.settings[ownerNetworks]) != 0 {
		t.Errorf("left: %+v %+v", r.rules.Networks, r.settings)
	}
}
