package api

import (
	"encoding/json"
	"testing"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
)

// A machine without autostart is started by `start` and by an apply, even
// without another difference; it cannot be restarted.
func TestRestingMachinesAreStartedByHand(t *testing.T) {
	for what, start := range map[string]func(*client.Client) error{
		"start": func(c *client.Client) error { return c.Power(t.Context(), "one", "start") },
		"apply": func(c *client.Client) error { _, err := c.Apply(t.Context(), request("web", yaml("one"))); return err },
	} {
		b := newBench(t)
		c := b.listen(t)
		if _, err := c.Apply(t.Context(), request("web", yaml("one"))); err != nil {
			t.Fatal(err)
		}
		id := state.ID{Kind: spec.KindMachine, Name: "one"}
		status := running("one")
		status.State = spec.MachineStopped
		status.Conditions = []spec.Condition{{Type: spec.ConditionReady, Reason: spec.ReasonNotAutostarted}}
		before, err := b.store.Write(t.Context(), state.Atomic, state.Write{ID: id, Revision: state.AnyRevision, Status: spec.Encode(status)})
		if err != nil {
			t.Fatal(err)
		}
		faulttest.Want(t, c.Power(t.Context(), "one", "restart"), fault.Conflict)
		if err := start(c); err != nil {
			t.Fatal(err)
		}
		after, err := b.store.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var record spec.MachineRecord
		if err := json.Unmarshal(after.Spec, &record); err != nil {
			t.Fatal(err)
		}
		if record.PowerOverride == nil || !*record.PowerOverride || after.Generation <= before[0].Object.Generation {
			t.Errorf("%s: power %v, generation %d → %d", what, record.PowerOverride, before[0].Object.Generation, after.Generation)
		}
	}
}

// A machine that the user froze is resumed by `start` and by `restart`, each
// time again; requests while it runs do not resume a later freeze.
func TestFrozenMachinesAreResumedByHand(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	if _, err := c.Apply(t.Context(), request("web", yaml("one"))); err != nil {
		t.Fatal(err)
	}
	frozen := running("one")
	frozen.State = spec.MachineStopped
	for _, step := range []struct {
		status spec.MachineStatus
		action string
		want   int
	}{{running("one"), "start", 0}, {frozen, "start", 1}, {frozen, "start", 2}, {frozen, "restart", 3}, {frozen, "stop", 3}} {
		if _, err := b.store.Write(t.Context(), state.Atomic, state.Write{
			ID: id(spec.KindMachine, "one"), Revision: state.AnyRevision, Status: spec.Encode(step.status),
		}); err != nil {
			t.Fatal(err)
		}
		if err := c.Power(t.Context(), "one", step.action); err != nil {
			t.Fatal(err)
		}
		if _, record := b.record(t, "one"); record.RetryRequest != step.want {
			t.Errorf("%s: asked for %d times, want %d", step.action, record.RetryRequest, step.want)
		}
	}
}

// A guest's configuration for which no stamp had room is kept until its machine
// is declared again.
func TestDeclaredAgainAGuestIsToldAgain(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	b.machine("one", state.Alive, spec.MachineRecord{Header: spec.Header{Declaration: "web"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}, GuestLost: true}, running("one"))
	if err := c.Power(t.Context(), "one", "stop"); err != nil {
		t.Fatal(err)
	}
	if _, rec := b.record(t, "one"); !rec.GuestLost {
		t.Error("stopping it has it told again")
	}
	if _, err := c.Apply(t.Context(), request("web", yaml("one"))); err != nil {
		t.Fatal(err)
	}
	if _, rec := b.record(t, "one"); rec.GuestLost {
		t.Error("it is not told again")
	}
}
