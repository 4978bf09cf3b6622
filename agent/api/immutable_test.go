package api

import (
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// The type is what a machine is: another hypervisor's guest of the same name
// would be a second one beside the first. Plan and apply say so, all at once
// and whatever is allowed, and a machine that is gone leaves its name free.
func TestTheTypeOfAMachineStays(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	if _, err := c.Apply(t.Context(), request("web", yaml("one", "two", "three"))); err != nil {
		t.Fatal(err)
	}
	before := b.store.changes()
	other := strings.NewReplacer("one: {type: lxd", "one: {type: kvm", "two: {type: lxd", "two: {type: kvm").Replace(yaml("one", "two", "three"))
	req := request("web", other)
	words := []string{"web", "machine/one is of type lxd and cannot become kvm", "machine/two", "hostler delete machine/one", "another name"}
	_, err := c.Plan(t.Context(), req)
	wantKind(t, err, fault.Conflict, words...)
	req.Allow = []string{"recreate"}
	_, err = c.Apply(t.Context(), req)
	wantKind(t, err, fault.Conflict, words...)
	if strings.Contains(err.Error(), "three") {
		t.Errorf("three keeps its type: %v", err)
	}
	_, err = b.ApplyFile(t.Context(), "/etc/hostler/conf.d/base.yaml", []byte(strings.Replace(yaml("one"), "lxd", "kvm", 1)))
	wantKind(t, err, fault.Conflict)
	if b.store.changes() != before {
		t.Error("a refused change has written")
	}
	if _, rec := b.record(t, "one"); rec.Machine.Type != spec.LXD {
		t.Errorf("one is of type %s", rec.Machine.Type)
	}

	if _, err := c.Delete(t.Context(), []string{"machine/one", "machine/two"}); err != nil {
		t.Fatal(err)
	}
	_, err = c.Apply(t.Context(), req)
	wantKind(t, err, fault.NotReady, "still being removed")
	for _, name := range []string{"one", "two"} {
		if _, err := b.store.Write(t.Context(), state.Atomic, state.Write{ID: id(spec.KindMachine, name), Revision: state.AnyRevision, Delete: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Apply(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if _, rec := b.record(t, "one"); rec.Machine.Type != spec.KVM {
		t.Errorf("one is of type %s", rec.Machine.Type)
	}
}
