package networkprovisioner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/firewall"
	"hostler/internal/fault"
)

// On a bridge over the host's NIC hostler keeps what is declared. Other addresses and
// routes are those of the NIC's manager and of other programs: what they add stays
// and goes with the NIC, what they remove is not put back.
func TestTheNICsManagerRulesTheHostsBridge(t *testing.T) {
	own := func(name string) hostnet.Address {
		return hostnet.Address{Link: "br-up", Prefix: netip.MustParsePrefix(name)}
	}
	way := hostnet.Route{Link: "eth0", Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1"), Table: 254}
	r := newRig(t, Observed{Host: hostnet.Observed{
		Links:     []hostnet.Link{{Name: "eth0", MAC: "52:54:00:00:00:01", MTU: 1500, Up: true}},
		Addresses: []hostnet.Address{{Link: "eth0", Prefix: netip.MustParsePrefix("192.0.2.10/24")}},
		Routes:    []hostnet.Route{way},
	}})
	addresses := func(link string) string {
		var all []string
		for _, a := range r.o.Host.AddressesOf(link) {
			all = append(all, a.Prefix.String())
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	declare := func(address string) {
		r.redeclare("up", spec.Network{Bridge: "br-up", Interfaces: []string{"eth0"}, Addresses: []string{address}})
		r.pass()
	}
	declare("10.20.0.1/24")
	equalText(t, "bridged", addresses("br-up"), "10.20.0.1/24 192.0.2.10/24")

	o := &r.o.Host
	o.Addresses = slices.DeleteFunc(o.Addresses, func(a hostnet.Address) bool { return a.Prefix == own("192.0.2.10/24").Prefix })
	o.Addresses = append(o.Addresses, own("192.0.2.11/24"), own("192.0.2.200/32"))
	for i := range o.Routes {
		if o.Routes[i].Default() {
			o.Routes[i].Gateway = netip.MustParseAddr("192.0.2.254")
		}
	}
	r.applied = nil
	r.pass()
	equalText(t, "after the manager's change", strings.Join(r.applied, "; "), "")

	declare("10.20.0.2/24")
	equalText(t, "another declared address", addresses("br-up"), "10.20.0.2/24 192.0.2.11/24 192.0.2.200/32")
	if s, _ := r.status("up"); s.State != stateReady {
		t.Errorf("%+v", s)
	}

	r.write(state.Write{ID: state.ID{Kind: spec.KindNetwork, Name: "up"}, Revision: state.AnyRevision, Life: state.Dying})
	r.pass()
	equalText(t, "given back", addresses("eth0"), "192.0.2.11/24 192.0.2.200/32")
	i := slices.IndexFunc(o.Routes, hostnet.Route.Default)
	if i < 0 || o.Routes[i].Link != "eth0" || o.Routes[i].Gateway.String() != "192.0.2.254" {
		t.Errorf("the routes are %v", o.Routes)
	}
}

// While a host NIC is under a bridge, and while the guard may put it back there, the
// rules drop nothing that comes from the NIC.
func TestTheRulesLetTheHostsNICThrough(t *testing.T) {
	r := newRig(t, Observed{Host: hostnet.Observed{
		Links:     []hostnet.Link{{Name: "eth0", MAC: "52:54:00:00:00:01", MTU: 1500, Up: true}},
		Addresses: []hostnet.Address{{Link: "eth0", Prefix: netip.MustParsePrefix("192.0.2.10/24")}},
	}})
	bounded := func(rules firewall.Rules) bool { return len(rules.Networks[0].Subnets) > 0 }
	r.redeclare("up", spec.Network{Bridge: "br-up", Addresses: []string{"10.20.0.1/24"}})
	r.pass()
	if !bounded(r.rules) {
		t.Fatalf("%+v", r.rules)
	}
	r.redeclare("up", spec.Network{Bridge: "br-up", Addresses: []string{"10.20.0.1/24"}, Interfaces: []string{"eth0"}})
	r.pass()
	if bounded(r.guarded) || bounded(r.rules) {
		t.Errorf("when the NIC joins: %+v, then %+v", r.guarded, r.rules)
	}
	r.redeclare("up", spec.Network{Bridge: "br-up", Addresses: []string{"10.20.0.1/24"}})
	r.waits = true
	r.pass()
	if l, _ := r.o.Host.Link("eth0"); l.Master != "" || bounded(r.guarded) || bounded(r.rules) {
		t.Errorf("when the NIC has left: %+v, %+v, then %+v", l, r.guarded, r.rules)
	}
	r.armed = ""
	r.pass()
	if !bounded(r.rules) {
		t.Errorf("after the confirmation: %+v", r.rules)
	}
}

// A deleted bridge of the host's NIC is made again even if no rules can be loaded.
func TestTheHostsBridgeComesBackWithoutTheRules(t *testing.T) {
	nic := hostnet.Link{Name: "eth0", MAC: "52:54:00:00:00:01", MTU: 1500, Up: true}
	r := newRig(t, Observed{Host: hostnet.Observed{
		Links: []hostnet.Link{nic}, Addresses: []hostnet.Address{{Link: "eth0", Prefix: netip.MustParsePrefix("192.0.2.10/24")}},
	}})
	r.redeclare("up", spec.Network{Bridge: "br-up", Addresses: []string{"10.20.0.1/24"}, Interfaces: []string{"eth0"}})
	r.pass()
	r.pass()
	if l, _ := r.o.Host.Link("eth0"); l.Master != "br-up" {
		t.Fatalf("%+v", l)
	}
	r.o.Host.Links, r.o.Host.Addresses, r.o.Host.Routes = []hostnet.Link{nic}, nil, nil
	r.rules, r.rulesErr = firewall.Rules{}, fault.New(fault.Transient, "nft gave no answer")
	r.pass()
	if l, _ := r.o.Host.Link("eth0"); l.Master != "br-up" {
		t.Errorf("the NIC is %+v", l)
	}
}

// A bridge that the NIC's manager makes itself is left to the manager, e.g. at the
// host's boot, but a change of the declaration is not.
func TestTheNICsManagerMakesTheBridgeAgain(t *testing.T) {
	nic := hostnet.Link{Name: "eth0", MAC: "52:54:00:00:00:01", MTU: 1500, Up: true}
	r := newRig(t, Observed{Host: hostnet.Observed{
		Links: []hostnet.Link{nic}, Addresses: []hostnet.Address{{Link: "eth0", Prefix: netip.MustParsePrefix("192.0.2.10/24")}},
	}})
	r.redeclare("up", spec.Network{Bridge: "br-up", Interfaces: []string{"eth0"}})
	r.pass()
	r.o.Own.Restored = map[string]string{"br-up": "eth0"}
	bridge, _ := r.o.Host.Link("br-up")
	for name, links := range map[string][]hostnet.Link{"none": {nic}, "no port": {nic, bridge}} {
		r.o.Host.Links, r.applied = slices.Clone(links), nil
		r.pass()
		equalText(t, name, strings.Join(r.applied, "; "), "restore br-up")
		if s, _ := r.status("up"); s.State != statePending || s.Message != "NetworkManager puts eth0 under br-up" {
			t.Errorf("%s: %+v", name, s)
		}
	}
	r.applied = nil
	r.redeclare("up", spec.Network{Bridge: "br-up", Interfaces: []string{"eth0"}, Addresses: []string{"10.20.0.1/24"}})
	r.pass()
	if l, _ := r.o.Host.Link("eth0"); l.Master != "br-up" || slices.Contains(r.applied, "restore br-up") {
		t.Errorf("%+v after %q", l, r.applied)
	}
}

// A dying network keeps its record while the guard may put its bridge back.
func TestTheRecordStaysWhileTheGuardIsArmed(t *testing.T) {
	r := newRig(t, Observed{Host: hostnet.Observed{
		Links:     []hostnet.Link{{Name: "eth0", MAC: "52:54:00:00:00:01", MTU: 1500, Up: true}},
		Addresses: []hostnet.Address{{Link: "eth0", Prefix: netip.MustParsePrefix("192.0.2.10/24")}},
	}})
	r.redeclare("up", spec.Network{Bridge: "br-up", Interfaces: []string{"eth0"}})
	r.pass()
	r.waits = true // the agent dies before the guard judges the change
	r.write(state.Write{ID: state.ID{Kind: spec.KindNetwork, Name: "up"}, Revision: state.AnyRevision, Life: state.Dying})
	r.pass()
	if _, there := r.status("up"); !there || r.armed != "network/up" || len(r.o.Host.Links) != 1 {
		t.Errorf("the record is there: %v, armed %q, %+v", there, r.armed, r.o.Host.Links)
	}
	r.armed = ""
	r.pass()
	if _, there := r.status("up"); there {
		t.Error("the record stays")
	}
}
