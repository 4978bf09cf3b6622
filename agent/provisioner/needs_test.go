package provisioner

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hostler/agent/spec"
	"hostler/containerbroker"
)

// A running machine whose changes wait until the user permits that of its volume has
// looked at its declaration: nothing goes on by itself, so nobody waits for it.
func TestConditionNamesStorageWhoseChangeIsHeld(t *testing.T) {
	for reason, held := range map[string]bool{"HeldBack": true, "AsDeclared": false} {
		objects := aSite()
		var status spec.StorageStatus
		if err := objects[2].Decode(nil, &status); err != nil {
			t.Fatal(err)
		}
		status.Attachments["web"] = spec.AttachmentStatus{State: spec.StoragePending}
		status.Conditions = []spec.Condition{{Type: spec.ConditionUpToDate, Status: !held, Reason: reason}}
		objects[2].Status = spec.Encode(status)
		objects[0].Status = spec.Encode(spec.MachineStatus{Uses: []string{"volume/data"}})
		desired, err := Decode(objects, spec.LXD, Config{Namespace: ns})
		if err != nil {
			t.Fatal(err)
		}
		d, inst := &desired[0], instance("web")
		d.Generation = 2
		first := assess(d, &inst, nil, t0)
		c := spec.ConditionOf(first.Conditions, spec.ConditionUpToDate)
		if (first.ObservedGeneration == 2) != held || c.Status == held || strings.Contains(c.Message, "volume/data") != held {
			t.Errorf("%s: observed generation %d, %+v", reason, first.ObservedGeneration, c)
		}
		d.Status = first
		if again := assess(d, &inst, nil, t0.Add(time.Minute)); !cmp.Equal(first, again) {
			t.Errorf("%s: the next pass writes another status:\n%s", reason, cmp.Diff(first, again))
		}
		inst.Status = containerbroker.StatusStopped
		if s := assess(d, &inst, nil, t0); spec.ConditionOf(s.Conditions, spec.ConditionUpToDate).Reason == "HeldBack" {
			t.Errorf("%s: held while it is stopped", reason)
		}
	}
}

// Storage whose change is held for another reason, or whose worker has not seen the
// machine's declaration, is still to come.
func TestStorageThatIsToComeIsNotHeld(t *testing.T) {
	for name, c := range map[string]struct {
		uses  []string
		offer spec.AttachmentStatus
	}{
		"an allocation is held while it is attached": {nil, spec.AttachmentStatus{State: spec.StoragePending}},
		"the mode was taken back":                    {[]string{"volume/data"}, spec.AttachmentStatus{State: spec.StoragePending, ReadOnly: true}},
	} {
		objects := aSite()
		objects[0].Status = spec.Encode(spec.MachineStatus{Uses: c.uses})
		objects[2].Status = spec.Encode(spec.StorageStatus{
			Attachments: map[string]spec.AttachmentStatus{"web": c.offer},
			Conditions:  []spec.Condition{{Type: spec.ConditionUpToDate, Reason: spec.ReasonHeldBack}},
		})
		desired, err := Decode(objects, spec.LXD, Config{Namespace: ns})
		if err != nil {
			t.Fatal(err)
		}
		d, inst := &desired[0], instance("web")
		d.Generation = 2
		if s := assess(d, &inst, nil, t0); s.ObservedGeneration == 2 || len(d.Waiting) != 1 {
			t.Errorf("%s: waiting for %v, observed generation %d", name, d.Waiting, s.ObservedGeneration)
		}
	}
}

// A machine that waits for a recreate and a restart shows both.
func TestConditionNamesAllHeldChanges(t *testing.T) {
	var s spec.MachineStatus
	assessUpToDate(&s, nil, []Step{
		{Action: ActionRecreate, Impact: containerbroker.ImpactRecreate, Detail: "changes image", Held: "--allow recreate"},
		{Action: ActionRestart, Impact: containerbroker.ImpactRestart, Detail: "changes nesting", Held: "--allow restart"},
	}, time.Now())
	c := s.Conditions[0]
	if c.Reason != "NeedsRestart" || !strings.Contains(c.Message, "changes image") || !strings.Contains(c.Message, "changes nesting") {
		t.Errorf("%+v", c)
	}
}
