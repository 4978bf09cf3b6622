package recovery

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
)

// scanMachines compares a type's instances with the records. After each opening
// of the store it checks whether the store is an older copy. Once in the life of
// a store, and after a loss, instances with our stamp and no record belong to a
// lost store, and their records are restored from the stamps.
func (r *Recovery) scanMachines(ctx context.Context, t spec.ContainerType) error {
	if record, err := r.record(ctx); err != nil || record.Compared(t) {
		return err
	}
	broker, err := r.Broker(t)
	if err != nil {
		return err
	}
	if err := r.Await(ctx); err != nil { // the storage worker must wait even if the listing takes long or fails
		return err
	}
	instances, err := broker.List(ctx, false) // r.mu is not held here, so a hypervisor that hangs delays no other type
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.record(ctx)
	if err != nil || record.Compared(t) {
		return err
	}
	unmarked := r.lost && record.Phase == spec.RecoveryNone && record.Scanned(string(t))
	if n := proofs(r.owner(record, t), instances, unmarked); n > 0 {
		if err := r.older(ctx, t, n); err != nil {
			return err
		}
		if record, err = r.record(ctx); err != nil {
			return err
		}
	}
	found, owner := 0, r.owner(record, t)
	if !record.Scanned(string(t)) {
		ours := takeBack(&owner, instances, r.lost)
		found, err = r.restore(ctx, func(objects []state.Object) ([]state.Write, int, error) {
			return recordsOf(t, ours, objects, owner.Namespace)
		})
		if err != nil {
			return err
		}
	}
	return r.done(ctx, string(t), found, string(t)+" machines", owner.Lineage.Predecessors)
}

// restore writes the missing records. missing() gets the store's objects and
// returns the writes, and the number of records that they restore.
func (r *Recovery) restore(ctx context.Context, missing func([]state.Object) (writes []state.Write, found int, err error)) (found int, err error) {
	objects, _, err := r.Store.List(ctx)
	if err != nil {
		return 0, fmt.Errorf("cannot read the store: %w", err)
	}
	writes, found, err := missing(objects)
	if err != nil || len(writes) == 0 {
		return found, err
	}
	if _, err := r.Store.Write(ctx, state.Atomic, writes...); err != nil {
		return 0, fmt.Errorf("cannot write the found records down: %w", err)
	}
	return found, nil
}

// recordsOf returns the writes that restore the records of a type's stamped
// instances. These are machines with their uid and instance, and the
// declarations that the machines came from. found is the number of machines. An
// instance that was made for a machine of another type gets no record, because
// the machine would be made again under that type. recordsOf is pure.
func recordsOf(t spec.ContainerType, instances []containerbroker.Instance, objects []state.Object, namespace string) (writes []state.Write, found int, err error) {
	uids, byID := map[string]bool{}, map[state.ID]state.Object{}
	for _, o := range objects {
		byID[o.ID] = o
		uids[o.UID] = true
	}
	declared := declare.Restored{Stored: byID}
	// A user's copy of an instance bears the same stamp, so the oldest instance
	// counts as the machine's.
	instances = slices.SortedStableFunc(slices.Values(instances), func(a, b containerbroker.Instance) int { return a.Created.Compare(b.Created) })
	for _, inst := range instances {
		if inst.Stamp == nil || inst.Stamp.Namespace != namespace || uids[inst.Stamp.UID] || provisioner.MadeAs(inst, t) != "" {
			continue
		}
		var stamped provisioner.StampedRecord
		if err := json.Unmarshal([]byte(inst.Stamp.Record), &stamped); err != nil || inst.Stamp.UID == "" {
			continue // without a readable stamp the instance stays an orphan
		}
		id := state.ID{Kind: spec.KindMachine, Name: cmp.Or(stamped.MachineName, inst.Name)}
		restored := stamped.MachineRecord()
		if restored.Adopted {
			restored.AdoptedToken = inst.Stamp.Token
		}
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
				Uses: spec.Objects(stamped.Machine.Storage), UsesNICs: spec.NICObjects(stamped.Machine.Networks),
			}),
		}
		if newer, taken := byID[id]; taken {
			var record spec.MachineRecord
			var status spec.MachineStatus
			if err := newer.Decode(&record, &status); err != nil {
				return nil, 0, err
			}
			// By now the name belongs to a machine with another instance or of another
			// type.
			if status.Instance != nil || record.Machine.Type != stamped.Machine.Type {
				continue
			}
			// The machine was declared again before the instance was found, so the new
			// declaration is kept with the instance's uid.
			writes = append(writes, state.Write{ID: id, Revision: newer.Revision, Delete: true})
			if record.InstanceName = restored.InstanceName; restored.Adopted {
				record.Adopted, record.AdoptedToken = true, restored.AdoptedToken
			}
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
