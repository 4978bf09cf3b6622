package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"hostler/agent/declare"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// learn compares a type's instances with the records, once in the life of a
// store. Instances with our stamp and no record belong to a lost store, so
// learn restores their records from the stamps. At each start of the agent it
// also checks whether the store is an older copy. It changes nothing on the
// hypervisor. It fails with fault.NotReady if there is no hypervisor.
func (h *host) learn(ctx context.Context, t spec.ContainerType) error {
	// Machines refer to storage, so storage comes first. Unless records were lost,
	// its failure holds up no machine.
	if err := h.learnStorage(ctx); err != nil {
		if h.lost.Load() || ctx.Err() != nil {
			return err
		}
		h.logger.Warn("The storage that is there cannot be compared with the records yet.", "error", err)
	}
	if err := h.learnMachines(ctx, t); err != nil {
		return err
	}
	return h.finishRecovery(ctx)
}

func (h *host) learnMachines(ctx context.Context, t spec.ContainerType) error {
	h.learning.Lock()
	defer h.learning.Unlock()
	known, err := h.hostStatus(ctx)
	if err != nil || h.compared[t] && slices.Contains(known.Known, t) {
		return err
	}
	d, err := h.driver(t)
	if err != nil {
		return err
	}
	instances, err := d.Broker.List(ctx, false)
	if err != nil {
		return err
	}
	if err := h.compareAge(ctx, t, &known, instances); err != nil {
		return err
	}
	if slices.Contains(known.Known, t) {
		return h.setCompared(ctx, t)
	}
	if instances, err = h.takeBack(ctx, t, instances); err != nil {
		return err
	}
	objects, _, err := h.store.List(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the store: %w", err)
	}
	writes, found, err := recordsOf(instances, objects, h.config().Namespace)
	if err != nil {
		return err
	}
	if len(writes) > 0 {
		if _, err := h.store.Write(ctx, state.Atomic, writes...); err != nil {
			return fmt.Errorf("cannot write the found machines down: %w", err)
		}
		known.Notices = append(known.Notices, fmt.Sprintf("%d %s machines were recognised after the agent's records were lost", found, t))
		h.logger.Warn("Records were written again from stamps.", "type", t, "machines", found)
	}
	known.Known = append(known.Known, t)
	if err := h.writeHostStatus(ctx, known); err != nil {
		return err
	}
	return h.setCompared(ctx, t)
}

// finishRecovery ends the recovery once all existing hypervisors and the
// storage were compared; the next start then trusts the records. A hypervisor
// that is set up later is compared at that time, as on every host.
func (h *host) finishRecovery(ctx context.Context) error {
	if !h.lost.Load() || h.unfound(ctx) != "" {
		return nil
	}
	if err := h.renew(ctx); err != nil {
		return err
	}
	return h.local.MarkComplete(ctx)
}

// learned fails with fault.NotReady until a type's instances were compared with
// the records of this store. The API needs it for provisioners in separate
// processes: these outlive the agent and its store, and would take an instance
// without a record for an orphan. Provisioners inside the agent start only
// after learn.
func (h *host) learned(ctx context.Context, t spec.ContainerType) error {
	known, err := h.hostStatus(ctx)
	if err == nil && !slices.Contains(known.Known, t) {
		err = fault.New(fault.NotReady, "the records of %s machines are not complete yet: their instances were not compared with them", t)
	}
	return err
}

// forgetKnown makes learn compare every type's instances with the records
// again, after records were lost.
func (h *host) forgetKnown(ctx context.Context, report state.OpenReport) error {
	status, err := h.hostStatus(ctx)
	if err != nil {
		return err
	}
	h.lost.Store(true)
	status.Known, status.KnownStorage = nil, false
	if report.Quarantined != "" {
		h.logger.Warn("The store was lost and replaced by an empty store.", "reason", report.Reason, "quarantined", report.Quarantined)
		status.Notices = append(status.Notices, fmt.Sprintf("the store was moved to %s and replaced by an empty store: %s", report.Quarantined, report.Reason))
	}
	return h.writeHostStatus(ctx, status)
}

// recordsOf returns the writes that restore the records of stamped instances:
// machines with their uid and instance, and the declarations that they came
// from. Pure.
func recordsOf(instances []containerbroker.Instance, objects []state.Object, namespace string) (writes []state.Write, found int, err error) {
	uids, byID := map[string]bool{}, map[state.ID]state.Object{}
	for _, o := range objects {
		byID[o.ID] = o
		uids[o.UID] = true
	}
	declared := declare.Restored{Stored: byID}
	// Copies that a user made bear the same stamp; the oldest instance is the
	// machine's.
	instances = slices.SortedStableFunc(slices.Values(instances), func(a, b containerbroker.Instance) int { return a.Created.Compare(b.Created) })
	for _, inst := range instances {
		if inst.Stamp == nil || inst.Stamp.Namespace != namespace || uids[inst.Stamp.UID] {
			continue
		}
		var stamped provisioner.StampedRecord
		if err := json.Unmarshal([]byte(inst.Stamp.Record), &stamped); err != nil || inst.Stamp.UID == "" {
			continue // without a readable stamp the instance stays an orphan
		}
		id := state.ID{Kind: spec.KindMachine, Name: cmp.Or(stamped.MachineName, inst.Name)}
		restored := stamped.MachineRecord()
		if id.Name != inst.Name {
			restored.InstanceName = inst.Name
		}
		write := state.Write{
			ID: id, UID: inst.Stamp.UID, Life: state.Alive,
			Spec: spec.Encode(restored),
			Status: spec.Encode(spec.MachineStatus{
				State: spec.MachineUnknown, Message: "found by its stamp",
				Instance: &spec.InstanceInfo{
					Name: inst.Name, Token: inst.Stamp.Token, Image: stamped.Machine.Image,
					ImageID: inst.ImageID, Created: inst.Created,
				},
				Uses: spec.Objects(stamped.Machine.Storage),
			}),
		}
		if newer, taken := byID[id]; taken {
			var status spec.MachineStatus
			if len(newer.Status) > 0 {
				if err := json.Unmarshal(newer.Status, &status); err != nil {
					return nil, 0, fault.New(fault.NeedsOperator, "cannot read the status of machine/%s: %v", inst.Name, err)
				}
			}
			var record spec.MachineRecord
			if err := json.Unmarshal(newer.Spec, &record); err != nil {
				return nil, 0, fault.New(fault.NeedsOperator, "cannot read the record of machine/%s: %v", inst.Name, err)
			}
			// The name belongs to another hypervisor's machine by now.
			if status.Instance != nil || record.Machine.Type != stamped.Machine.Type {
				continue
			}
			// The machine was declared again before the instance was found: keep the
			// new declaration with the instance's uid.
			writes = append(writes, state.Write{ID: id, Revision: newer.Revision, Delete: true})
			record.Adopted, record.InstanceName = record.Adopted || stamped.Adopted, restored.InstanceName
			write.Spec = spec.Encode(record)
		} else {
			declared.Add(id, &restored)
		}
		writes = append(writes, write)
		uids[inst.Stamp.UID] = true
		found++
	}
	return append(writes, declared.Writes()...), found, nil
}
