package provisioner

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// drawPlanInput draws machines and instances that match, differ, or are unrelated.
func drawPlanInput(t *rapid.T) ([]Desired, Observed, Policy) {
	var desired []Desired
	o := Observed{Complete: true}
	for i := range rapid.IntRange(0, 8).Draw(t, "machines") {
		d := machine(fmt.Sprintf("m%d", i))
		if rapid.Bool().Draw(t, "provisioned") {
			provisioned(&d)
		}
		if rapid.Bool().Draw(t, "dying") {
			dying(&d)
			d.Record.Machine.Retain = rapid.Bool().Draw(t, "retain")
		}
		running := rapid.Bool().Draw(t, "running")
		d.Record.Machine.Running = &running
		d.Record.Consent(rapid.SampledFrom([][]string{nil, {"restart"}, {"recreate"}}).Draw(t, "allow"))
		desired = append(desired, d)
		switch rapid.SampledFrom([]string{"none", "own", "foreign", "other", "left over"}).Draw(t, "instance") {
		case "own":
			o.Instances = append(o.Instances, instance(d.Name, aState(t)))
			if d.Status.Instance == nil {
				o.Intents = append(o.Intents, state.Intent{Token: "token-" + d.Name, UID: d.UID})
			}
		case "foreign":
			o.Instances = append(o.Instances, instance(d.Name, aState(t), foreign))
		case "other":
			o.Instances = append(o.Instances, instance(d.Name, func(i *containerbroker.Instance) { i.Stamp.Namespace = "another" }))
		case "left over":
			o.Instances = append(o.Instances, instance(d.Name, func(i *containerbroker.Instance) { i.Stamp.UID = "old" }))
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "strangers") {
		change := rapid.SampledFrom([]func(*containerbroker.Instance){foreign, stopped, madeAs(spec.KVM)}).Draw(t, "stranger")
		o.Instances = append(o.Instances, instance(fmt.Sprintf("x%d", i), change))
	}
	return desired, o, Policy{
		Type: spec.LXD, Namespace: ns, Now: t0, Diff: noDiff,
		Harvest: rapid.SampledFrom([]Harvest{HarvestNone, HarvestUnknown, HarvestDestroyed, HarvestAll}).Draw(t, "harvest"),
	}
}

func aState(t *rapid.T) func(*containerbroker.Instance) {
	s := rapid.SampledFrom([]containerbroker.Status{containerbroker.StatusRunning, containerbroker.StatusStopped, containerbroker.StatusBusy}).Draw(t, "state")
	return func(i *containerbroker.Instance) { i.Status = s }
}

// carryOut applies the steps to the drawn state.
func carryOut(desired []Desired, o Observed, steps []Step) ([]Desired, Observed) {
	desired, o.Instances = slices.Clone(desired), slices.Clone(o.Instances)
	for _, s := range steps {
		if s.Held != "" {
			continue
		}
		at := slices.IndexFunc(desired, func(d Desired) bool { return d.Name == s.Machine })
		inst := slices.IndexFunc(o.Instances, func(i containerbroker.Instance) bool { return i.Name == s.Machine })
		switch s.Action {
		case ActionDelete:
			o.Instances, desired = slices.Delete(o.Instances, inst, inst+1), slices.Delete(desired, at, at+1)
		case ActionHarvest:
			o.Instances = slices.Delete(o.Instances, inst, inst+1)
		case ActionRelease:
			o.Instances[inst].Stamp = nil
			desired = slices.Delete(desired, at, at+1)
		case ActionForget:
			desired = slices.Delete(desired, at, at+1)
		case ActionStop:
			o.Instances[inst].Status = containerbroker.StatusStopped
		case ActionRecord:
			provisioned(&desired[at])
		case ActionCreate:
			provisioned(&desired[at])
			o.Instances = append(o.Instances, instance(s.Machine))
			if !desired[at].wantsRunning() {
				o.Instances[len(o.Instances)-1].Status = containerbroker.StatusStopped
			}
		case ActionStart, ActionRestart, ActionReady:
			o.Instances[inst].Status = containerbroker.StatusRunning
			setReady(&desired[at].Status, true, "Usable", "", t0)
		}
	}
	return desired, o
}

// After a plan is carried out, the next plan is empty, except that an instance
// whose record was removed is harvested as an orphan.
func TestPlanConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		desired, observed, policy := drawPlanInput(t)
		for range 3 {
			desired, observed = carryOut(desired, observed, Plan(desired, observed, policy))
		}
		for _, s := range Plan(desired, observed, policy) {
			if s.Action != ActionConflict {
				t.Fatalf("still planned after three rounds: %s %s (%s)", s.Action, s.Machine, s.Detail)
			}
		}
	})
}

// A plan changes nothing without our stamp, plans nothing from an incomplete
// observation and puts removals first.
func TestPlanIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		desired, observed, policy := drawPlanInput(t)
		makes := false
		for _, s := range Plan(desired, observed, policy) {
			if s.removes() && makes {
				t.Fatalf("%s %s comes after a step that makes", s.Action, s.Machine)
			}
			makes = makes || !s.removes()
			if i := s.Instance; i != nil && s.Action != ActionConflict && (i.Stamp == nil || i.Stamp.Namespace != ns) {
				t.Fatalf("%s touches %s, which is not ours", s.Action, i.Name)
			}
			if s.Held == "" && (s.Action == ActionDelete || s.Action == ActionHarvest) {
				switch {
				case s.Action == ActionHarvest && MadeAs(*s.Instance, policy.Type) != "":
					t.Fatalf("%s takes an instance of another type", s.Machine)
				case s.Action == ActionHarvest && !policy.Harvest.unknown(), s.Action == ActionDelete && !policy.Harvest.destroyed():
					t.Fatalf("%s %s in harvest mode %s", s.Action, s.Machine, policy.Harvest)
				}
			}
		}
		observed.Complete = false
		if steps := Plan(desired, observed, policy); len(steps) != 0 {
			t.Fatalf("planned from an incomplete observation: %v", summary(steps, t0))
		}
	})
}
