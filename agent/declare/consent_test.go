package declare

import (
	"slices"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/plan"
)

// heldStep returns a step of the object, which may wait for consent.
func heldStep(object string, held bool) []plan.Step {
	st := plan.Step{Object: object}
	if held {
		st.Held = "--allow"
	}
	return []plan.Step{st}
}

// An allowed impact stays allowed as long as the network's declaration stays
// the same.
func TestAllowNetworks(t *testing.T) {
	id := state.ID{Kind: spec.KindNetwork, Name: "lan"}
	allowed := func(w *State) []string {
		return w.objects["network/lan"].head().Allow
	}
	doc := func(mtu int) []Document {
		return []Document{applied("site", decl(map[string]spec.Network{"lan": {Bridge: "br-lan", MTU: mtu}}, nil))}
	}
	record := spec.NetworkRecord{Header: spec.Header{Declaration: "site"}, Network: spec.Network{Bridge: "br-lan", MTU: 1500}}
	for _, step := range []struct {
		mtu  int
		held bool
		want []string
	}{{1500, false, nil}, {1400, false, []string{"restart"}}, {1400, false, []string{"restart"}}, {1300, true, []string{"restart"}}} {
		w, err := New([]state.Object{{ID: id, UID: "u", Revision: 1, Life: state.Alive, Spec: spec.Encode(record)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		docs := doc(step.mtu)
		w.putAll(docs...)
		changed := step.mtu != record.Network.MTU
		if changed && allowed(w) != nil {
			t.Errorf("mtu %d: allowed before it was asked: %v", step.mtu, allowed(w))
		}
		w.allow([]string{"restart"}, docs, heldStep("network/lan", step.held), map[string]bool{})
		if got := allowed(w); !slices.Equal(got, step.want) {
			t.Errorf("mtu %d: allowed %v, want %v", step.mtu, got, step.want)
		}
		record.Network.MTU, record.Allow = step.mtu, allowed(w)
	}
}

// Consent to restart covers steps that come up while the provisioner still
// carries out the declaration; consent to recreate does not.
func TestConsentHoldsWhileAMachineIsMade(t *testing.T) {
	record := spec.MachineRecord{Header: spec.Header{Declaration: "site"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}}
	docs := []Document{applied("site", spec.Declaration{Machines: map[string]spec.Machine{"web": record.Machine}})}
	for state1, want := range map[spec.MachineState]bool{spec.MachineProvisioning: true, spec.MachineRunning: false} {
		w, err := New([]state.Object{{
			ID: ID("machine/web"), UID: "u", Revision: 1, Generation: 1, Life: state.Alive, Spec: spec.Encode(record),
			Status: spec.Encode(spec.MachineStatus{State: state1, ObservedGeneration: 1, Instance: &spec.InstanceInfo{Name: "web"}}),
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.putAll(docs...)
		w.allow([]string{"recreate", "restart"}, docs, nil, map[string]bool{})
		if got := w.objects["machine/web"].head().Allow; slices.Equal(got, []string{"restart"}) != want {
			t.Errorf("%s: allowed %v", state1, got)
		}
	}
}

// A machine that is renamed and changed at once has the consent that is given with
// the change.
func TestConsentForARenamedMachine(t *testing.T) {
	record := spec.MachineRecord{Header: spec.Header{Declaration: "site"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}}
	w, err := New([]state.Object{{ID: ID("machine/web"), UID: "u", Revision: 1, Life: state.Alive, Spec: spec.Encode(record)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	renamed := record.Machine
	renamed.RenamedFrom, renamed.Nesting = "web", true
	docs := []Document{applied("site", spec.Declaration{Machines: map[string]spec.Machine{"www": renamed}})}
	w.putAll(docs...)
	w.allow([]string{"restart"}, docs, heldStep("machine/www", true), map[string]bool{})
	if m := w.objects["machine/www"].machine(); m.InstanceName != "web" || !m.AllowsRestart(&spec.MachineStatus{}) {
		t.Errorf("the record is %+v", m)
	}
}

// Consent to a recreate covers a single recreate: consent for a machine that is
// held again is written even if the record already has the same words.
func TestConsentToRecreateIsGivenEachTime(t *testing.T) {
	record := spec.MachineRecord{Header: spec.Header{Declaration: "site", Allow: []string{"recreate"}}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}}
	docs := []Document{applied("site", spec.Declaration{Machines: map[string]spec.Machine{"web": record.Machine}})}
	for _, held := range []bool{true, false} {
		w, err := New([]state.Object{{ID: ID("machine/web"), UID: "u", Revision: 1, Life: state.Alive, Spec: spec.Encode(record)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.putAll(docs...)
		w.allow([]string{"recreate"}, docs, heldStep("machine/web", held), map[string]bool{})
		writes := slices.ContainsFunc(w.Writes(), func(wr state.Write) bool { return wr.ID == ID("machine/web") })
		if writes != held {
			t.Errorf("held %v: written %v", held, writes)
		}
	}
}

// Consent to a restart renews no consent to a recreate that was used.
func TestConsentToARestartIsForARestart(t *testing.T) {
	record := spec.MachineRecord{Header: spec.Header{Declaration: "site"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}}
	record.Consent([]string{"recreate"})
	w, err := New([]state.Object{{ID: ID("machine/web"), UID: "u", Revision: 1, Life: state.Alive, Spec: spec.Encode(record)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.putAll(applied("site", spec.Declaration{Machines: map[string]spec.Machine{"web": record.Machine}}))
	for impact, want := range map[string]int{"restart": 1, "recreate": 2} {
		w.objects["machine/web"].machine().Consents = 1
		if errs := w.Consent(impact, []string{"machine/web"}, Unread{}); errs[0] != nil {
			t.Fatal(errs)
		}
		if r := w.objects["machine/web"].machine(); r.Consents != want || !slices.Contains(r.Allow, impact) {
			t.Errorf("%s: %d consents, allowed %v", impact, r.Consents, r.Allow)
		}
	}
}

// The planner has no step for a machine without an instance.
func TestARemovedObjectHasAStep(t *testing.T) {
	steps := withRemoved([]plan.Step{{Object: "machine/one", Action: "delete"}}, []string{"machine/one", "machine/two"})
	if len(steps) != 2 || steps[1].Object != "machine/two" || steps[1].Action != "delete" {
		t.Errorf("steps %+v", steps)
	}
}

// Consent covers the steps that other allowed steps cause: a machine restarts for
// the new addresses of its network.
func TestConsentCoversTheStepsThatItCauses(t *testing.T) {
	network := spec.NetworkRecord{Header: spec.Header{Declaration: "site"}, Network: spec.Network{Bridge: "br0", Addresses: []string{"10.0.0.1/24"}}}
	machine := spec.MachineRecord{Header: spec.Header{Declaration: "site"}, Machine: spec.Machine{
		Type: spec.LXD, Image: "debian/12", Networks: map[string]spec.NIC{"eth0": {Network: "lan"}},
	}}
	status := spec.MachineStatus{State: spec.MachineRunning, ObservedGeneration: 1, Instance: &spec.InstanceInfo{Name: "web"}}
	w, err := New([]state.Object{
		{ID: ID("network/lan"), UID: "n", Revision: 1, Generation: 1, Life: state.Alive, Spec: spec.Encode(network)},
		{ID: ID("machine/web"), UID: "m", Revision: 1, Generation: 1, Life: state.Alive, Spec: spec.Encode(machine), Status: spec.Encode(status)},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	restart := func(object string, allowed bool) plan.Step {
		st := plan.Step{Object: object, Action: "restart", Impact: plan.Restart, Held: "--allow restart", Allow: plan.Restart}
		if allowed {
			st.Held, st.Allow = "", ""
		}
		return st
	}
	host := Host{
		Refuse: func([]Planned) error { return nil },
		Plan: func([]Planned, map[string]bool) ([]plan.Step, error) {
			changes := len(w.objects["network/lan"].head().Allow) > 0
			steps := []plan.Step{restart("network/lan", changes)}
			if changes {
				steps = append(steps, restart("machine/web", w.objects["machine/web"].machine().AllowsRestart(&status)))
			}
			return steps, nil
		},
	}
	network.Network.Addresses = []string{"10.0.1.1/24"}
	docs := []Document{applied("site", spec.Declaration{
		Networks: map[string]spec.Network{"lan": network.Network}, Machines: map[string]spec.Machine{"web": machine.Machine},
	})}
	a, err := w.Apply(Request{Documents: docs, Allow: []string{"restart"}}, host)
	if err != nil || len(a.Steps) != 2 || a.Steps[0].Held+a.Steps[1].Held != "" {
		t.Errorf("%+v, %v", a.Steps, err)
	}
	for object, o := range w.objects {
		if m := o.machine(); m != nil && m.RestartConsents != 1 {
			t.Errorf("%s has %d consents", object, m.RestartConsents)
		}
	}
}
