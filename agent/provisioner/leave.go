package provisioner

import (
	"context"
	"strings"

	"hostler/containerbroker"
)

// leave plans for a machine whose instance outlives its record. The instance
// keeps everything except its volumes. It holds a volume by a device number,
// and the kernel reuses that number for another volume once no attachment is
// recorded.
func (w *world) leave(d Desired, inst *containerbroker.Instance) []Step {
	forget := Step{
		Action: ActionForget, Machine: d.Name, UID: d.UID, Impact: containerbroker.ImpactNone, Instance: inst,
		Detail: "the instance is kept unchanged (harvest " + string(w.policy.Harvest) + ")",
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
	forget.Detail = "the instance is kept without its volumes (harvest " + string(w.policy.Harvest) + ")"
	return []Step{forget}
}

// forgetWithout detaches the volumes from the instance and then removes the
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
