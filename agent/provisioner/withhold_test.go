package provisioner

import (
	"testing"

	"hostler/containerbroker"
)

// F12: while records may be missing, no instance is deleted: neither an orphan,
// nor that of a removed machine, nor for a recreate that the user allowed. The
// statuses say what they wait for, and everything else goes on.
func TestNothingIsDeletedDuringARecovery(t *testing.T) {
	const why = "lxd to be compared with the records"
	observed := Observed{Complete: true, Instances: []containerbroker.Instance{
		instance("gone"), instance("orphan"), instance("new", func(i *containerbroker.Instance) { i.ImageID = "other" }), instance("off", stopped),
	}}
	desired := []Desired{
		machine("gone", provisioned, dying), machine("off", provisioned), machine("fresh"),
		machine("new", provisioned, func(d *Desired) { d.Generation = 2; d.Record.Consent([]string{"recreate"}) }),
	}
	diff := func(m containerbroker.Machine, _ containerbroker.Instance) []containerbroker.Change {
		if m.Name != "new" {
			return nil
		}
		return []containerbroker.Change{{Field: "image", Impact: containerbroker.ImpactRecreate}}
	}
	policy := Policy{Namespace: ns, Harvest: HarvestAll, Now: t0, Diff: diff}
	for _, withheld := range []string{"", why} {
		policy.Withheld = withheld
		waits := map[string]string{}
		for _, s := range Plan(desired, observed, policy) {
			waits[string(s.Action)+" "+s.Machine] = s.Waiting
			if s.Action == ActionHarvest && s.Visible() != (withheld == "") {
				t.Errorf("withheld %q: the harvest is visible: %v", withheld, s.Visible())
			}
		}
		for step, want := range map[string]string{"delete gone": withheld, "harvest orphan": withheld, "recreate new": withheld, "start off": "", "create fresh": ""} {
			if got, planned := waits[step]; !planned || got != want {
				t.Errorf("withheld %q: %s is planned: %v, and waits for %q", withheld, step, planned, got)
			}
		}
	}
	steps := Plan(desired, observed, policy)
	for i, name := range []string{"gone", "new"} {
		d, inst := desired[3*i], observed.Instances[2*i]
		s := assess(&d, &inst, []Step{*find(steps[0:], actionOf(name))}, t0)
		if s.Message != "waiting for "+why || s.ObservedGeneration == d.Generation {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func actionOf(name string) Action {
	return map[string]Action{"gone": ActionDelete, "new": ActionRecreate}[name]
}
