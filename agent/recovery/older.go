package recovery

import (
	"context"
	"fmt"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// proofs counts the instances that were stamped at a revision that the store
// never had. They prove that the store is an older copy. unmarked is true if
// the store is of a version that stamped no marks. Then the mark of any other
// store is a proof too. proofs is pure.
func proofs(owner provisioner.Owner, instances []containerbroker.Instance, unmarked bool) (count int) {
	if owner.Lineage.Old {
		return 0
	}
	for _, i := range instances {
		if owner.Newer(i) {
			count++
		}
	}
	if unmarked {
		count += len(owner.OfAnother(instances))
	}
	return count
}

// older starts the recovery of an older copy of the store. No type counts as
// scanned any more. A notice, the log and an event on the host object report
// the older copy.
func (r *Recovery) older(ctx context.Context, t spec.ContainerType, proofs int) error {
	text := fmt.Sprintf("%s holds an older copy of the store: %d %s instances were made or changed after it. They are recorded again from their stamps, "+
		"and no instance is deleted. Apply the current declarations again, or stop the agent and put the newest state directory back",
		r.StateDir, proofs, t)
	r.lost = true
	err := r.update(ctx, func(record *spec.Recovery) {
		record.SetOld()
		record.Begin(r.Types)
	}, text)
	if err != nil {
		return err
	}
	event := state.Event{Time: r.Now(), Object: state.ID{Kind: spec.KindHost, Name: spec.HostName}, Level: state.LevelError, Reason: "OlderStore", Message: text}
	return fault.Explain(r.Store.Record(ctx, event), "cannot record that the store is an older copy")
}

// takeBack returns the instances whose records may be restored. After a loss
// these are all instances of the namespace, and owner's lineage gets the stores
// that stamped them as predecessors. Without a loss, instances of another store
// are left out.
func takeBack(owner *provisioner.Owner, instances []containerbroker.Instance, lost bool) (ours []containerbroker.Instance) {
	before := *owner
	for _, i := range instances {
		if !lost || i.Stamp == nil || i.Stamp.Namespace != owner.Namespace {
			continue
		}
		if origin := before.Lineage.Of(i.Stamp.Store); origin == spec.OriginAnother || origin == spec.OriginBeyond {
			owner.Lineage.Precede(spec.SplitMark(i.Stamp.Store))
		}
	}
	for _, i := range instances {
		if owner.Owns(i) {
			ours = append(ours, i)
		}
	}
	return ours
}
