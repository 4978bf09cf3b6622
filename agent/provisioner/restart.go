package provisioner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// restart makes the changes that need a restart and restarts the instance.
func (o *operation) restart(ctx context.Context, s Step) error {
	if len(s.Changes) > 0 {
		if err := o.updateBeforeRestart(ctx, s); err != nil {
			return err
		}
	}
	if err := o.enter(ctx); err != nil {
		return err
	}
	o.d.Status.RestartBegun = &spec.RestartBegun{Request: o.d.Record.RestartRequest, At: o.w.Now()}
	if err := o.announce(ctx, "restarting"); err != nil {
		return err
	}
	if err := o.power(ctx, containerbroker.PowerRestart); err != nil {
		return err
	}
	o.d.Status.RestartedFor = restartedFor(&o.d, s.Changes)
	if err := o.save(ctx); err != nil { // the wait for readiness may be cut short
		return err
	}
	o.event(ctx, state.LevelInfo, "Restarted", s.Detail)
	return o.ready(ctx)
}

// updateBeforeRestart makes changes that take effect at the next restart. Once
// made, such a change no longer shows as a difference. Therefore
// updateBeforeRestart first records that a restart is owed. If this operation
// is cut short, a later pass restarts the instance.
func (o *operation) updateBeforeRestart(ctx context.Context, s Step) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	done := o.d.Status.RestartsDone
	o.d.Status.RestartsDone, o.d.Status.RestartBegun = o.d.Record.RestartRequest-1, nil
	err := o.save(ctx)
	if err == nil {
		if err = o.update(ctx, s); fault.Is(err, fault.Transient) {
			return err // the changes may have been made despite the error
		}
	}
	if err != nil {
		o.d.Status.RestartsDone = done
	}
	return err
}

// restartDue reports whether the instance still has to restart as requested. A restart
// whose end was not recorded shows in the time of the instance's last start, if the
// hypervisor reports it.
func restartDue(d *Desired, inst *containerbroker.Instance, now time.Time) bool {
	begun := d.Status.RestartBegun
	return d.Record.RestartRequest > d.Status.RestartsDone &&
		(begun == nil || begun.Request != d.Record.RestartRequest || !inst.Started.After(begun.At) || inst.Started.After(now)) // the clock may have been set back
}

// resume lets a frozen instance run on. This is not a start, so an owed restart
// stays owed.
func (o *operation) resume(ctx context.Context) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	o.show(ctx, "resuming")
	opCtx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := o.w.Broker.SetPower(opCtx, o.d.instanceName(), containerbroker.PowerStart, stopTimeout); err != nil {
		return fmt.Errorf("cannot resume the instance: %w", err)
	}
	o.d.Status.RetriesDone = o.d.Record.RetryRequest
	o.event(ctx, state.LevelInfo, "Resumed", "")
	return o.ready(ctx)
}

// ineffectiveRestart returns a held step and true if an earlier restart did not
// make one of the changes. Without the held step, the instance would restart again
// and again.
func ineffectiveRestart(d *Desired, inst *containerbroker.Instance, restart []containerbroker.Change) (Step, bool) {
	made := d.Status.RestartedFor
	if made == nil || made.Generation != d.Generation || d.Record.RestartRequest > d.Status.RestartsDone ||
		inst.Status != containerbroker.StatusRunning || !anyOf(made, restart) || !d.allows(containerbroker.ImpactRestart) {
		return Step{}, false
	}
	s := d.conflict(inst, fmt.Sprintf("a restart did not change %s (%s): declare the present value, or change it with the hypervisor's tools; "+
		"`hostler retry machine/%s` restarts it again", fields(restart), describe(restart), d.Name))
	s.Changes = restart
	return s, true
}

// restartedFor returns the note for the status that the instance was restarted
// for changes. Without changes it returns the present note.
func restartedFor(d *Desired, changes []containerbroker.Change) *spec.RestartedFor {
	if len(changes) == 0 {
		return d.Status.RestartedFor
	}
	made := &spec.RestartedFor{Generation: d.Generation}
	for _, c := range changes {
		made.Fields = append(made.Fields, c.Field)
	}
	return made
}

// pendingRestart returns made while any of its changes is still missing, else
// nil. With nil, a later change by hand can cause a restart again.
func pendingRestart(d *Desired, inst *containerbroker.Instance, made *spec.RestartedFor, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) *spec.RestartedFor {
	if made == nil || inst == nil || len(d.Waiting) > 0 {
		return made
	}
	left := slices.DeleteFunc(diff(d.Machine, *inst), func(c containerbroker.Change) bool { return c.Impact != containerbroker.ImpactRestart })
	if !anyOf(made, left) {
		return nil
	}
	return made
}

// anyOf reports whether made contains one of the changes.
func anyOf(made *spec.RestartedFor, changes []containerbroker.Change) bool {
	return slices.ContainsFunc(changes, func(c containerbroker.Change) bool { return slices.Contains(made.Fields, c.Field) })
}
