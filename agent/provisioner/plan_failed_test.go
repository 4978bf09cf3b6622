package provisioner

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// P15 P17: despite a failure that waits for the operator, a machine that is
// declared as running is started, unless the start itself failed. Its drift is
// corrected, except in the fields of the failed step.
func TestP15FailedMachinesAreKeptRunning(t *testing.T) {
	change := func(field string) containerbroker.Change {
		return containerbroker.Change{Field: field, Impact: containerbroker.ImpactLive}
	}
	for what, c := range map[string]struct {
		d     Desired
		inst  containerbroker.Instance
		diff  []containerbroker.Change
		steps []string
	}{
		"its cloud-init failed":       {d: machine("web", provisioned, failed(fault.NeedsOperator, nil)), inst: instance("web", stopped), steps: []string{"start"}},
		"it was refused a change":     {d: machine("web", provisioned, failed(fault.Invalid, nil)), inst: instance("web", stopped), diff: []containerbroker.Change{change("root-disk")}, steps: []string{"start"}},
		"what it has may be anothers": {d: machine("web", provisioned, failed(fault.NeedsOperator, nil)), inst: instance("web", stopped), diff: []containerbroker.Change{change("disk vol-data"), change("root-disk")}, steps: []string{"update disk vol-data", "start"}},
		"its declaration is refused":  {d: machine("web", provisioned, failed(fault.Invalid, nil)), inst: instance("web", stopped), diff: []containerbroker.Change{change("declaration")}, steps: []string{"update declaration", "start"}},
		"its start failed":            {d: machine("web", provisioned, failed(fault.NeedsOperator, nil), func(d *Desired) { d.Status.StartFailed = true }), inst: instance("web", stopped)},
		"it runs":                     {d: machine("web", provisioned, failed(fault.NeedsOperator, nil)), inst: instance("web"), diff: []containerbroker.Change{change("cpus")}, steps: []string{"update cpus"}},
		"it runs and lacks what failed": {
			d:    machine("web", provisioned, failed(fault.Invalid, nil), failedAt(ActionUpdate, "root-disk")),
			inst: instance("web"), diff: []containerbroker.Change{change("cpus"), change("root-disk")}, steps: []string{"update cpus"},
		},
		"its start failed, and it drifts": {
			d:    machine("web", provisioned, failed(fault.NeedsOperator, nil), func(d *Desired) { d.Status.StartFailed = true }),
			inst: instance("web", stopped), diff: []containerbroker.Change{change("cpus")}, steps: []string{"update cpus"},
		},
		"it runs and is not to": {
			d:    machine("web", provisioned, failed(fault.NeedsOperator, nil), func(d *Desired) { d.Record.Machine.Running = new(false) }),
			inst: instance("web"), steps: []string{"stop"},
		},
		"its stop failed": {
			d:    machine("web", provisioned, failed(fault.NeedsOperator, nil), failedAt(ActionStop), func(d *Desired) { d.Record.Machine.Running = new(false) }),
			inst: instance("web"),
		},
		"it is not to run": {d: machine("web", provisioned, failed(fault.NeedsOperator, nil), func(d *Desired) { d.Record.Machine.Running = new(false) }), inst: instance("web", stopped)},
		"it waits":         {d: machine("web", provisioned, failed(fault.NeedsOperator, nil), func(d *Desired) { d.Waiting = []string{"network/lan"} }), inst: instance("web", stopped)},
		"it keeps dying": {d: machine("web", provisioned, failed(fault.NeedsOperator, nil), func(d *Desired) {
			d.Status.StartedAt, d.Status.Deaths = &t0, 4
		}), inst: instance("web", stopped), steps: []string{"start in 4s"}},
	} {
		var lines []string
		for _, s := range Plan([]Desired{c.d}, Observed{Complete: true, Instances: []containerbroker.Instance{c.inst}}, Policy{Namespace: ns, Now: t0, Diff: differs(c.diff...)}) {
			line := string(s.Action) + " " + fields(s.Changes)
			if s.After.After(t0) {
				line += "in " + s.After.Sub(t0).Truncate(time.Second).String() // without its jitter
			}
			lines = append(lines, strings.TrimSpace(line))
		}
		if diff := cmp.Diff(c.steps, lines); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}

func failedAt(a Action, fields ...string) func(*Desired) {
	return func(d *Desired) { d.Status.FailedStep = &spec.FailedStep{Action: string(a), Fields: fields} }
}

// A driver refuses a declaration for the host's configuration, e.g. for its keys. The
// failure ends with the refusal, not earlier.
func TestARefusalEnds(t *testing.T) {
	refuses := func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change {
		return containerbroker.Refused(errors.New("no"))
	}
	desired := []Desired{machine("web", provisioned, failed(fault.Invalid, nil), func(d *Desired) {
		d.Status.FailedStep = &spec.FailedStep{Action: string(ActionUpdate), Fields: []string{containerbroker.FieldDeclaration}}
	})}
	instances := []containerbroker.Instance{instance("web")}
	endRefusals(desired, instances, Owner{Namespace: ns}, refuses)
	if s := desired[0].Status; s.Attempts.ErrorKind == "" || s.FailedStep == nil {
		t.Errorf("while it is refused: %+v", s)
	}
	endRefusals(desired, instances, Owner{Namespace: ns}, noDiff)
	if s := desired[0].Status; s.Attempts.ErrorKind != "" || s.FailedStep != nil || !desired[0].Amended {
		t.Errorf("afterwards: %+v", s)
	}
}
