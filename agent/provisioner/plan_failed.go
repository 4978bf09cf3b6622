package provisioner

import (
	"context"
	"slices"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// start plans the start of an instance. If the instance died soon after its
// last starts, the step waits for deathPause().
func (p *planner) start(d *Desired, inst *containerbroker.Instance) Step {
	s := d.step(ActionStart, inst, "declared as running")
	if at := d.Status.StartedAt; at != nil {
		delay := d.deathPause()
		if due := at.Add(delay); reconcile.Pending(due, p.policy.Now, delay) && !p.nudged(d) {
			s.After = due
		}
	}
	return s
}

// planFailed plans for a machine whose last failure waits for the operator. It
// still corrects drift, but does not repeat the step that failed.
func (p *planner) planFailed(d *Desired, inst *containerbroker.Instance) []Step {
	live, restart, recreate := p.differences(d, inst)
	steps := d.held(inst, recreate, restart)
	if d.Status.Instance == nil {
		return steps
	}
	stopped := inst.Status == containerbroker.StatusStopped
	if stopped && d.wantsRunning() && !d.Status.StartFailed && len(d.Waiting) == 0 {
		// Update only NICs and disks before the start, because their old host
		// devices may belong to another machine by now. The other changes follow
		// once the instance runs. If the driver refuses the declaration, the update
		// fails, and with it the start.
		start := p.start(d, inst)
		devices := slices.DeleteFunc(live, func(c containerbroker.Change) bool { return !isDevice(c) })
		if len(devices) > 0 {
			update := d.change(ActionUpdate, inst, devices, "changed without a restart: ")
			update.After = start.After
			steps = append(steps, update)
		}
		return append(steps, start)
	}
	live = slices.DeleteFunc(live, func(c containerbroker.Change) bool { return failedFor(d.Status.FailedStep, c) })
	if len(live) > 0 {
		update := d.change(ActionUpdate, inst, live, "changed without a restart: ")
		update.DespiteFailure = true
		steps = append(steps, update)
	}
	if !d.wantsRunning() && !stopped && !failedTo(d.Status.FailedStep, ActionStop) {
		stop := d.step(ActionStop, inst, "declared as not running")
		stop.DespiteFailure = true
		steps = append(steps, stop)
	}
	return steps
}

// isDevice reports whether a change concerns a NIC or a disk, or may do so.
func isDevice(c containerbroker.Change) bool {
	return containerbroker.IsDevice(c.Field) || c.Field == containerbroker.FieldNetworkConfig || c.Field == containerbroker.FieldDeclaration
}

func failedTo(failed *spec.FailedStep, a Action) bool {
	return failed != nil && failed.Action == string(a)
}

func failedFor(failed *spec.FailedStep, c containerbroker.Change) bool {
	return failed != nil && slices.Contains(failed.Fields, c.Field)
}

// remainingFailure returns the failed step with only those fields that still
// differ. A field that no longer differs may drift later and is then corrected
// again.
func remainingFailure(d *Desired, inst *containerbroker.Instance, failed *spec.FailedStep, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) *spec.FailedStep {
	if failed == nil || len(failed.Fields) == 0 || inst == nil || len(d.Waiting) > 0 {
		return failed
	}
	differ := diff(d.Machine, *inst)
	left := slices.DeleteFunc(slices.Clone(failed.Fields), func(field string) bool {
		return !slices.ContainsFunc(differ, func(c containerbroker.Change) bool { return c.Field == field })
	})
	return &spec.FailedStep{Action: failed.Action, Fields: left}
}

// endRefusals ends the failures of machines whose declaration the driver refused and
// now takes, e.g. since hostler.yaml changed. No declaration of theirs would end them.
func endRefusals(desired []Desired, instances []containerbroker.Instance, owner Owner, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) {
	refusal := containerbroker.Change{Field: containerbroker.FieldDeclaration}
	byUID := ownInstances(desired, instances, owner)
	for i := range desired {
		d := &desired[i]
		inst := byUID[d.UID]
		if inst == nil || inst.Unreadable || !failedFor(d.Status.FailedStep, refusal) ||
			failedFor(remainingFailure(d, inst, d.Status.FailedStep, diff), refusal) {
			continue
		}
		clearFailure(&d.Status)
		d.Amended = true
	}
}

// recordLaterFailure records the failure of a step with DespiteFailure set. The
// earlier failure stays in the status. A later pass tries the step again after
// a pause, unless the new failure also needs the operator.
func (o *operation) recordLaterFailure(ctx context.Context, s Step, err error) {
	o.w.pauseFor(s.Machine, err)
	o.event(ctx, state.LevelWarn, "Failed", string(s.Action)+": "+err.Error())
	switch fault.KindOf(err) {
	case fault.Transient, fault.NotReady, fault.Conflict:
		return
	}
	failed := spec.FailedStep{Action: string(s.Action)}
	if earlier := o.d.Status.FailedStep; earlier != nil {
		failed = *earlier
		failed.Fields = slices.Clip(failed.Fields)
	}
	for _, c := range s.Changes {
		if !failedFor(&failed, c) {
			failed.Fields = append(failed.Fields, c.Field)
		}
	}
	o.d.Status.FailedStep = &failed
	if err := o.save(ctx); err != nil {
		o.w.Logger.Warn("A failure cannot be recorded.", "machine", s.Machine, "error", err)
	}
}
