package networkprovisioner

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
)

// A condition reports a waiting network, alive or dying.
func TestWaitingIsACondition(t *testing.T) {
	n := network("lan", lan())
	dying := n
	dying.Life = state.Dying
	for _, c := range []struct {
		name                  string
		n                     Network
		p                     Planned
		state, reason, notice string
		upToDate              bool
	}{
		{"as declared", n, Planned{}, "ready", "AsDeclared", "", true},
		{"a change waits to be confirmed", n, Planned{Waits: "waits for a word"}, "pending", "Waiting", "", false},
		{"a change waits to be allowed", n, Planned{Held: "it cuts off web"}, "ready", "NeedsRestart", "network/lan: it cuts off web; apply again with --allow restart", false},
		{"dying", dying, Planned{}, "dying", "Dying", "", true},
		{"dying, with a machine", dying, Planned{Waiting: "waiting for machine/web to detach"}, "dying", "Waiting", "", false},
	} {
		s := assess(c.n, c.p, reconcile.Failure{}, t0)
		i := slices.IndexFunc(s.Conditions, func(c spec.Condition) bool { return c.Type == conditionUpToDate })
		if i < 0 || s.State != c.state || s.Conditions[i].Reason != c.reason || s.Conditions[i].Status != c.upToDate {
			t.Errorf("%s: %s, %+v", c.name, s.State, s.Conditions)
		}
		equalText(t, c.name, troubles(c.n, s), c.notice)
	}
}

// A NIC that a network has released keeps its record while the guard may still
// put it back. A NIC without a record gets the bridge's settings.
func TestAReleasedNICKeepsItsRecordWhileTheGuardIsArmed(t *testing.T) {
	n := network("up", spec.Network{Bridge: "br-up", Interfaces: []string{"eth0"}})
	n.Life = state.Dying
	is := n.Record.Network
	n.Status = spec.NetworkStatus{State: stateReady, Applied: &is, NICSettings: map[string]json.RawMessage{"eth0": []byte(`{"mac":"02:00:00:00:00:01"}`)}}
	d := Desired{Networks: []Network{n}}
	o := Observed{Host: hostnet.Observed{Links: []hostnet.Link{{Name: "eth0", Kind: "veth", MAC: "02:00:00:00:00:01", MTU: 1500, Up: true}}}}
	for _, armed := range []string{"network/up", ""} {
		o.Own.Armed = armed
		if kept := len(Make(d, o, policy()).Networks[0].NICSettings) > 0; kept != (armed != "") {
			t.Errorf("armed %q: the record is kept: %v", armed, kept)
		}
	}
	d.Networks[0].Status.NICSettings = nil
	o.Host.Links[0].Master, o.Host.Links[0].MasterKind = "br-up", "bridge"
	o.Host.Links = append(o.Host.Links, hostnet.Link{Name: "br-up", Kind: "bridge", Alias: hostnet.Stamp("ns", n.UID), MAC: "02:00:00:00:00:01", MTU: 1500, Up: true})
	o.Host.Addresses = []hostnet.Address{{Link: "br-up", Prefix: netip.MustParsePrefix("192.0.2.10/24")}}
	var words []string
	p := Make(d, o, policy()).Networks[0]
	for _, s := range p.Links {
		words = append(words, s.String())
	}
	if text := strings.Join(words, "; "); p.Waiting != "" || !strings.Contains(text, "add address 192.0.2.10/24 to eth0") || !strings.Contains(text, "remove bridge br-up") {
		t.Errorf("%q, %s", p.Waiting, text)
	}
}
