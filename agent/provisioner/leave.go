package provisioner

import (
	"context"
	"strings"

	"hostler/containerbroker"
)

// leave plans for a machine whose instance outlives its record. All of it
// stays as it is but the volumes: what an instance has of one is the number
// of a device, which is another volume's once nobody is known to have it.
func (w *world) leave(d Desired, inst *containerbroker.Instance) []Step {
	forget := Step{
		Action: ActionForget, Machine: d.Name, UID: d.UID, Impact: containerbroker.ImpactNone, Instance: inst,
		Detail: "the instance is left as it is (harvest " + string(w.policy.Harvest) + ")",
	}
	if inst.Status == containerbroker.StatusHalfMade {
		return []Step{forget} // it has never run
	}
	d.Machine.Disks = nil
	for _, c := range w.policy.Diff(d.Machine, *inst) {
		if disk, is := containerbroker.DiskOf(c.Field); is && strings.HasPrefix(disk, volumePrefix) {
			forget.Changes = append(forget.Changes, c)
		}
	}
	if len(forget.Changes) == 0 {
		return []Step{forget}
	}
	open, after := w.gate(d)
	if !open {
		return nil
	}
	forget.Impact, forget.After = containerbroker.ImpactLive, after
	forget.Detail = "the instance is left without its volumes (harvest " + string(w.policy.Harvest) + ")"
	return []Step{forget}
}

// forgetWithout takes from the instance what it may not keep, then removes the
// record.
func (o *operation) forgetWithout(ctx context.Context, s Step) error {
	if len(s.Changes) > 0 {
		o.d.Machine.Name, o.d.Machine.Disks, o.d.Machine.Stamp.Token = s.Instance.Name, nil, s.Instance.Stamp.Token
		if err := o.update(ctx, s); err != nil {
			return err
		}
	}
	return o.forget(ctx)
}
