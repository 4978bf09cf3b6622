package api

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// A document for which the host has no room is refused in plan and apply, and
// nothing is written.
func TestTheHostRefuses(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	b.host.refuses = "lan"
	before := b.store.changes()
	req := request("net", "version: 1\nnetworks: {lan: {bridge: br-lan}}\n")
	for name, do := range map[string]func() error{
		"plan":  func() error { _, err := c.Plan(t.Context(), req); return err },
		"apply": func() error { _, err := c.Apply(t.Context(), req); return err },
	} {
		if err := do(); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "network/lan cannot be on this host") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.store.changes() != before {
		t.Error("what was refused was written")
	}
}

// An allowed impact stays allowed as long as the network's declaration stays
// the same.
func TestAllowNetworks(t *testing.T) {
	id := state.ID{Kind: spec.KindNetwork, Name: "lan"}
	allowed := func(w *declaredState) []string {
		var r spec.NetworkRecord
		if err := json.Unmarshal(w.dependencies[id].now, &r); err != nil {
			t.Fatal(err)
		}
		return r.Allow
	}
	doc := func(mtu int) []document {
		return []document{{name: "site", source: spec.SourceApply, decl: decl(map[string]spec.Network{"lan": {Bridge: "br-lan", MTU: mtu}}, nil)}}
	}
	record := spec.NetworkRecord{Header: spec.Header{Declaration: "site"}, Network: spec.Network{Bridge: "br-lan", MTU: 1500}}
	for _, step := range []struct {
		mtu  int
		held bool
		want []string
	}{{1500, false, nil}, {1400, false, []string{"restart"}}, {1400, false, []string{"restart"}}, {1300, true, []string{"restart"}}} {
		w, err := newDeclaredState([]state.Object{{ID: id, UID: "u", Revision: 1, Life: state.Alive, Spec: spec.Encode(record)}})
		if err != nil {
			t.Fatal(err)
		}
		docs := doc(step.mtu)
		if err := w.put(docs...); err != nil {
			t.Fatal(err)
		}
		changed := step.mtu != record.Network.MTU
		if changed && allowed(w) != nil {
			t.Errorf("mtu %d: allowed before it was asked: %v", step.mtu, allowed(w))
		}
		if err := w.allowNetworks([]string{"restart"}, docs, map[string]bool{"lan": step.held}); err != nil {
			t.Fatal(err)
		}
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
	docs := []document{{name: "site", source: spec.SourceApply, decl: spec.Declaration{Machines: map[string]spec.Machine{"web": record.Machine}}}}
	for state1, want := range map[spec.MachineState]bool{spec.MachineProvisioning: true, spec.MachineRunning: false} {
		w, err := newDeclaredState([]state.Object{{
			ID: machineID("web"), UID: "u", Revision: 1, Generation: 1, Life: state.Alive, Spec: spec.Encode(record),
			Status: spec.Encode(spec.MachineStatus{State: state1, ObservedGeneration: 1, Instance: &spec.InstanceInfo{Name: "web"}}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.put(docs...); err != nil {
			t.Fatal(err)
		}
		w.allow([]string{"recreate", "restart"}, docs, nil)
		if got := w.machines["web"].record.Allow; slices.Equal(got, []string{"restart"}) != want {
			t.Errorf("%s: allowed %v", state1, got)
		}
	}
}

// Consent to a recreate covers a single recreate: consent for a machine that is
// held again is written even if the record already has the same words.
func TestConsentToRecreateIsGivenEachTime(t *testing.T) {
	record := spec.MachineRecord{Header: spec.Header{Declaration: "site", Allow: []string{"recreate"}}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}}
	docs := []document{{name: "site", source: spec.SourceApply, decl: spec.Declaration{Machines: map[string]spec.Machine{"web": record.Machine}}}}
	for _, held := range []bool{true, false} {
		w, err := newDeclaredState([]state.Object{{ID: machineID("web"), UID: "u", Revision: 1, Life: state.Alive, Spec: spec.Encode(record)}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.put(docs...); err != nil {
			t.Fatal(err)
		}
		w.allow([]string{"recreate"}, docs, map[string]bool{"web": held})
		writes := slices.ContainsFunc(w.writes(), func(wr state.Write) bool { return wr.ID == machineID("web") })
		if writes != held {
			t.Errorf("held %v: written %v", held, writes)
		}
	}
}
