package recovery

import (
	"context"
	"fmt"

	"hostler/agent/provisioner"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
)

// forgetBoot marks the machines as not seen if the host was restarted since the
// agent last ran, because their recorded states may be wrong until the
// hypervisor answers.
func (r *Recovery) forgetBoot(ctx context.Context, boot string) error {
	record, _, _, err := r.host.Read(ctx)
	if err != nil || boot == "" || record.Facts.Boot == "" || record.Facts.Boot == boot {
		return err
	}
	machines, _, err := r.Store.List(ctx, spec.KindMachine)
	if err != nil {
		return fmt.Errorf("cannot read the machines: %w", err)
	}
	var writes reconcile.Batch
	for _, o := range machines {
		var status spec.MachineStatus
		if err := o.Decode(nil, &status); err != nil {
			return err
		}
		writes.Status(o.ID, o.UID, status, provisioner.Unseen(o.Life, status))
	}
	return reconcile.NewFrame(r.Common).Write(ctx, writes)
}
