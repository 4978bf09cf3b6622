package networkprovisioner

import (
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

func plain(bridge, address string) spec.Network {
	return spec.Network{Bridge: bridge, Addresses: []string{address}}
}

// Missing programs for DHCP affect only networks with DHCP. The other networks
// are made and maintained, and the installation is retried only when due.
func TestMissingProgramsOfDHCP(t *testing.T) {
	r := newRig(t, Observed{})
	r.declare("plain", plain("br-plain", "10.20.0.1/24"))
	r.pass()
	with := plain("br-with", "10.21.0.1/24")
	with.DHCP = true
	r.declare("with", with)
	r.missing.dhcp = true
	next := r.pass()
	if s, _ := r.status("with"); s.State != stateError || !strings.Contains(s.Message, "no mirror answers") || r.installs != 1 || !next.After(r.now) {
		t.Errorf("%+v after %d installs, next at %v", s, r.installs, next)
	}
	if _, there := r.o.Host.Link("br-with"); !there {
		t.Error("without DHCP not even the bridge is made")
	}
	r.o.Host.Links, r.o.Host.Addresses, r.o.Host.Routes = nil, nil, nil // removed by another process; must be restored
	r.pass()
	if s, _ := r.status("plain"); s.State != stateReady || len(r.o.Host.AddressesOf("br-plain")) != 1 || len(r.rules.Networks) != 2 {
		t.Errorf("%+v %+v %+v", s, r.o.Host, r.rules.Networks)
	}
	if r.installs != 1 {
		t.Errorf("%d installs at once", r.installs)
	}
	r.now, r.missing.dhcp = next.Add(time.Second), false
	r.pass()
	if s, _ := r.status("with"); s.State != stateReady || r.o.Host.AddressesOf("br-with") == nil {
		t.Errorf("%+v", s)
	}
	// A running server needs no installation.
	r.missing.dhcp = true
	installs := r.installs
	r.pass()
	if s, _ := r.status("with"); s.State != stateReady || r.installs != installs {
		t.Errorf("%+v, %d installs", s, r.installs-installs)
	}
	// Programs that all networks need affect all networks.
	r.missing.all = true
	r.pass()
	if s, _ := r.status("plain"); s.State != stateError {
		t.Errorf("%+v", s)
	}
}

// A network whose steps fail does not delay others, and its steps are not
// retried in the same pass.
func TestOneNetworkFails(t *testing.T) {
	r := newRig(t, Observed{})
	r.declare("bad", plain("br-bad", "10.20.0.1/24"))
	r.declare("good", plain("br-good", "10.21.0.1/24"))
	r.fails["br-bad"] = fault.New(fault.Transient, "cannot do that")
	r.pass()
	if s, _ := r.status("bad"); s.State != stateError || s.Attempts.Count != 1 || !strings.Contains(s.Message, "cannot do that") {
		t.Errorf("%+v", s)
	}
	if s, _ := r.status("good"); s.State != stateReady {
		t.Errorf("%+v", s)
	}
	r.fails = nil
	r.now = r.now.Add(time.Minute)
	r.pass()
	if s, _ := r.status("bad"); s.State != stateReady || s.Attempts.Count != 0 {
		t.Errorf("%+v", s)
	}
}

// A network that was never on the host is deleted without installing the
// programs that it would have needed.
func TestDeletedBeforeItWasMade(t *testing.T) {
	dying := func(r *rig, name string) {
		t.Helper()
		o, err := r.store.Get(t.Context(), state.ID{Kind: spec.KindNetwork, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		r.write(state.Write{ID: o.ID, UID: o.UID, Revision: state.AnyRevision, Life: state.Dying})
	}
	r := newRig(t, Observed{})
	r.missing.all = true
	r.declare("lan", lan())
	r.declare("plain", plain("br-plain", "10.21.0.1/24"))
	r.pass()
	if s, _ := r.status("lan"); s.State != stateError || !strings.Contains(s.Message, "no mirror answers") {
		t.Errorf("%+v", s)
	}
	dying(r, "plain") // beside a network that still needs them
	r.pass()
	if _, there := r.status("plain"); there {
		t.Error("one that never was waits for the programs of another")
	}
	dying(r, "lan")
	installs := r.installs
	r.pass()
	if _, there := r.status("lan"); there || r.installs != installs {
		t.Errorf("there is %v, %d more installs", there, r.installs-installs)
	}

	// A network that was made has rules, which only those programs remove.
	r = newRig(t, Observed{})
	r.declare("lan", lan())
	r.pass()
	r.missing.all = true
	dying(r, "lan")
	r.pass()
	if s, there := r.status("lan"); !there || !strings.Contains(s.Message, "no mirror answers") {
		t.Errorf("%+v", s)
	}
	r.now, r.missing.all = r.now.Add(time.Minute), false
	r.pass()
	r.pass()
	if _, there := r.status("lan"); there || len(r.rules.Networks) > 0 || len(r.o.Host.Links) > 0 {
		t.Errorf("there is %v, %+v, %+v", there, r.rules, r.o.Host.Links)
	}
}
