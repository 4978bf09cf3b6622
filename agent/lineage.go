package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"hostler/agent/logging"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// writeStart makes the first writes of a start. The opening of the lineage comes
// first, because its revision must be that of the store before any write: each
// write takes a revision, e.g. the revision of an instance that is missing in
// an older copy.
func (h *host) writeStart(ctx context.Context, c spec.Config, boot string, report state.OpenReport) error {
	old, err := h.openLineage(ctx)
	if err != nil {
		return err
	}
	if err := h.forgetBoot(ctx, boot); err != nil {
		return err
	}
	if err := h.writeConfig(ctx, c); err != nil {
		return err
	}
	if report.Rebuilt || old {
		return h.forgetKnown(ctx, report)
	}
	return nil
}

// openLineage writes a fresh opening id and the current revision into the host
// record, for comparison with stamps. old: an earlier start found the store to
// be an older copy, and the recovery has not ended.
func (h *host) openLineage(ctx context.Context) (old bool, err error) {
	known, err := h.hostStatus(ctx)
	if err != nil && !fault.Is(err, fault.NotFound) { // a new store has no host record
		return false, err
	}
	_, revision, err := h.store.List(ctx, spec.KindHost)
	if err != nil {
		return false, fmt.Errorf("cannot read the store: %w", err)
	}
	opening := newToken()
	err = h.updateHost(ctx, func(r *spec.HostRecord) {
		l := &r.Lineage
		h.young = l.ID == "" || len(known.Known) == 0
		if l.ID == "" {
			l.ID = newToken()
		}
		l.Open(opening, revision, h.types(), known.Known)
		old = l.Old
	})
	return old, err
}

// setCompared notes that a type's instances were compared with the records in
// this start of the agent.
func (h *host) setCompared(ctx context.Context, t spec.ContainerType) error {
	record, err := h.hostRecord(ctx)
	if err != nil {
		return err
	}
	if _, waits := record.Lineage.Uncompared[t]; waits {
		if err := h.updateHost(ctx, func(r *spec.HostRecord) { r.Lineage.Compared(t) }); err != nil {
			return err
		}
	}
	h.compared[t] = true
	return nil
}

// owner returns the namespace and lineage that identify this agent's instances
// of a type.
func (h *host) owner(ctx context.Context, t spec.ContainerType) (provisioner.Owner, error) {
	record, err := h.hostRecord(ctx)
	return provisioner.Owner{Namespace: h.config().Namespace, Lineage: record.Lineage.For(t)}, err
}

// compareAge looks for instances stamped at a revision that the store never had,
// which prove the store an older copy. It then starts the recovery of a lost
// store: no type counts as compared any more, and status, log and an event on
// the host object report the older copy.
func (h *host) compareAge(ctx context.Context, t spec.ContainerType, known *spec.HostStatus, instances []containerbroker.Instance) error {
	owner, err := h.owner(ctx, t)
	if err != nil || owner.Lineage.Old {
		return err
	}
	proof := 0
	for _, i := range instances {
		if owner.Newer(i) {
			proof++
		}
	}
	if h.young && slices.Contains(known.Known, t) {
		// The store is of a version that stamped no marks.
		proof += len(owner.OfAnother(instances))
	}
	if proof == 0 {
		return nil
	}
	if err := h.updateHost(ctx, func(r *spec.HostRecord) { r.Lineage.SetOld() }); err != nil {
		return err
	}
	if err := h.forgetKnown(ctx, state.OpenReport{}); err != nil {
		return err
	}
	clear(h.compared)
	if *known, err = h.hostStatus(ctx); err != nil {
		return err
	}
	text := fmt.Sprintf("%s holds an older copy of the store: %d %s instances were made or changed after it. They are recorded again from their stamps, "+
		"and no instance is deleted. Apply the current declarations again, or stop the agent and put the newest state directory back",
		h.paths.StateDir, proof, t)
	known.Notices = append(known.Notices, text)
	if err := h.writeHostStatus(ctx, *known); err != nil {
		return err
	}
	event := state.Event{Time: h.now(), Object: state.ID{Kind: spec.KindHost, Name: spec.HostName}, Level: state.LevelError, Reason: "OlderStore", Message: text}
	if err := (logging.Events{Backend: h.store, Log: h.logger}).Record(ctx, event); err != nil {
		return fmt.Errorf("cannot record that the store is an older copy: %w", err)
	}
	if h.relearn != nil {
		h.relearn()
	}
	return nil
}

// takeBack returns the instances whose records may be written again. After a
// loss these are all instances of the namespace, and the ids of the stores that
// stamped them become former ids of this store. Otherwise another store's
// instances are left out.
func (h *host) takeBack(ctx context.Context, t spec.ContainerType, instances []containerbroker.Instance) ([]containerbroker.Instance, error) {
	owner, err := h.owner(ctx, t)
	if err != nil {
		return nil, err
	}
	predecessors := maps.Clone(owner.Lineage.Predecessors)
	if predecessors == nil {
		predecessors = map[string]int64{}
	}
	for _, i := range instances {
		if i.Stamp == nil || i.Stamp.Namespace != owner.Namespace || !h.young && !h.lost.Load() {
			continue
		}
		if origin := owner.Lineage.Of(i.Stamp.Store); origin == spec.OriginAnother || origin == spec.OriginBeyond {
			id, revision := spec.SplitMark(i.Stamp.Store)
			predecessors[id] = max(predecessors[id], revision)
		}
	}
	if !maps.Equal(predecessors, owner.Lineage.Predecessors) {
		owner.Lineage.Predecessors = predecessors
		if err := h.updateHost(ctx, func(r *spec.HostRecord) { r.Lineage.Predecessors = predecessors }); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(instances, func(i containerbroker.Instance) bool { return !owner.Owns(i) }), nil
}

// renew ends the recovery of an older copy with a new store id. The old id becomes
// a former id up to the copy's revision, so that the next start does not repeat
// the recovery and harvest never deletes later instances without a record.
func (h *host) renew(ctx context.Context) error {
	record, err := h.hostRecord(ctx)
	if err != nil || !record.Lineage.Old {
		return err
	}
	return h.updateHost(ctx, func(r *spec.HostRecord) {
		l := &r.Lineage
		if l.Predecessors == nil {
			l.Predecessors = map[string]int64{}
		}
		l.Predecessors[l.ID] = max(l.Predecessors[l.ID], l.Opened)
		l.ID, l.Old = newToken(), false
	})
}
