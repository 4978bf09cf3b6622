package provisioner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// release detaches the instance's storage, removes its stamp and deletes the
// record. It detaches the storage because without the record nothing reserves
// the storage for the instance. release uses the name of the found instance,
// since a user may have renamed it and another instance may have the machine's
// name.
func (o *operation) release(ctx context.Context, s Step) error {
	stamper, ok := o.w.Broker.(containerbroker.Stamper)
	if !ok {
		return fault.New(fault.Invalid, "cannot release: the %s driver cannot remove stamps", o.w.Type)
	}
	if err := o.enter(ctx); err != nil {
		return err
	}
	name, seen := s.Instance.Name, *s.Instance.Stamp
	o.d.Machine = undeclared(o.d.Machine, s.Instance)
	if disks := detaching(o.d.Machine, *s.Instance, o.w.Differ.Diff); len(disks) > 0 {
		if err := o.update(ctx, Step{Changes: disks}); err != nil {
			return err
		}
	}
	if err := stamper.Unstamp(ctx, name, seen); err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("cannot release the instance: %w", err)
	}
	o.event(ctx, state.LevelInfo, "Released", "the instance is kept")
	return o.forget(ctx)
}

// undeclared returns the machine for the update that detaches the storage of an
// instance that is kept. The result has nothing that a driver could refuse, e.g.
// user-data that is no longer valid.
func undeclared(m containerbroker.Machine, inst *containerbroker.Instance) containerbroker.Machine {
	m.Name, m.Stamp.Token = inst.Name, inst.Stamp.Token
	m.NICs, m.Disks, m.KeepGuest = nil, nil, true
	return m
}

// forgetSteps plans the removal of a machine's record that leaves the instance as
// it is, except that it detaches the volumes. The instance refers to a volume by a
// device number. Once no attachment is recorded, the kernel may give this number
// to another volume.
func (p *planner) forgetSteps(d *Desired, inst *containerbroker.Instance) []Step {
	forget := d.step(ActionForget, inst, "the instance is kept unchanged (harvest "+string(p.policy.Harvest)+")")
	if inst.Status == containerbroker.StatusHalfMade {
		return []Step{forget} // it has never run
	}
	if inst.Unreadable { // it may have volumes
		forget.Waiting = "its instance to be readable: " + inst.Odd
		return []Step{forget}
	}
	forget.Changes = slices.DeleteFunc(detaching(undeclared(d.Machine, inst), *inst, p.policy.Diff), func(c containerbroker.Change) bool {
		return !strings.HasPrefix(objectOf(c), spec.KindVolume)
	})
	if len(forget.Changes) == 0 {
		return []Step{forget}
	}
	open, after := p.gate(d)
	if !open {
		return nil
	}
	forget.Impact, forget.After = containerbroker.ImpactLive, after
	forget.Detail = "the instance is kept without its volumes (harvest " + string(p.policy.Harvest) + ")"
	return []Step{forget}
}

// forgetWithoutVolumes detaches the volumes from the instance and then removes the
// record.
func (o *operation) forgetWithoutVolumes(ctx context.Context, s Step) error {
	if len(s.Changes) > 0 {
		o.d.Machine = undeclared(o.d.Machine, s.Instance)
		if err := o.update(ctx, s); err != nil {
			return err
		}
	}
	return o.forget(ctx)
}
