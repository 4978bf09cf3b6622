package provisioner

import (
	"strings"
	"testing"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/hosttest"
)

// P24: the operation itself looks at the stamp again. It deletes no instance of
// another container type, whose record its store does not show.
func TestHarvestSparesInstancesOfAnotherType(t *testing.T) {
	for _, c := range []struct {
		made spec.ContainerType
		left bool
	}{{spec.LXD, false}, {spec.KVM, true}} {
		store, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		fake, inst := brokertest.New(), instance("web", stopped, madeAs(c.made))
		fake.Add(inst)
		w := New(reconcile.Common{Store: store, Now: time.Now}, Options{Type: spec.LXD, Broker: fake, Defaults: Config{Namespace: ns, Concurrency: 1}})
		s := Step{Action: ActionHarvest, Machine: "web", UID: inst.Stamp.UID, Instance: &inst}
		err = (&operation{w: w, steps: []Step{s}}).harvest(t.Context(), s)
		if _, left := fake.Get("web"); left != c.left || (err != nil) != c.left {
			t.Errorf("made as %s: left %v, %v", c.made, left, err)
		}
	}
}

// The conflict with an instance of another type names no harvest, which would
// leave the instance.
func TestConflictWithAnInstanceOfAnotherType(t *testing.T) {
	moved := instance("web", madeAs(spec.KVM), func(i *containerbroker.Instance) { i.Stamp.UID = "moved" })
	steps := Plan([]Desired{machine("web")}, Observed{Complete: true, Instances: []containerbroker.Instance{moved}},
		Policy{Type: spec.LXD, Namespace: ns, Harvest: HarvestAll, Now: t0, Diff: noDiff})
	if len(steps) != 1 || !strings.Contains(steps[0].Held, "kvm") || !strings.Contains(steps[0].Held, "`hostler adopt lxd/web`") || strings.Contains(steps[0].Held, "harvest") {
		t.Errorf("planned: %+v", steps)
	}
}
