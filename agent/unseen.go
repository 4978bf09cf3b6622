package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// forgetBoot marks the machines as not seen if the host was restarted since the
// agent last ran, because their recorded states may be wrong until the
// hypervisor answers.
func (h *host) forgetBoot(ctx context.Context, boot string) error {
	record, err := h.hostRecord(ctx)
	if err != nil || boot == "" || record.Facts.Boot == "" || record.Facts.Boot == boot {
		return err
	}
	machines, _, err := h.store.List(ctx, spec.KindMachine)
	if err != nil {
		return fmt.Errorf("cannot read the machines: %w", err)
	}
	var writes []state.Write
	for _, o := range machines {
		var status spec.MachineStatus
		if len(o.Status) == 0 {
			continue
		}
		if err := json.Unmarshal(o.Status, &status); err != nil {
			return fault.New(fault.NeedsOperator, "cannot read the status of machine/%s: %v", o.Name, err)
		}
		writes = append(writes, state.Write{
			ID: o.ID, UID: o.UID, Revision: state.AnyRevision, Status: spec.Encode(provisioner.Unseen(o.Life, status)),
		})
	}
	if len(writes) == 0 {
		return nil
	}
	if _, err := h.store.Write(ctx, state.Each, writes...); err != nil {
		return fmt.Errorf("cannot write the machines' statuses: %w", err)
	}
	return nil
}
