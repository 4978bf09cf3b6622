package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// openLineage begins a new opening of the store, by which stamps made from now
// on are told from those of before. It says whether the store was found to be
// an older copy before and what it does not know is still looked for.
func (h *host) openLineage(ctx context.Context) (old bool, err error) {
	known, err := h.hostStatus(ctx)
	if err != nil {
		return false, err
	}
	_, revision, err := h.store.List(ctx, spec.KindHost)
	if err != nil {
		return false, fmt.Errorf("cannot read the store: %w", err)
	}
	err = h.updateHost(ctx, func(r *spec.HostRecord) {
		l := &r.Lineage
		h.young = l.ID == "" || len(known.Known) == 0
		if l.ID == "" {
			l.ID = newToken()
		}
		if l.Opening = newToken(); !l.Old {
			l.Opened = revision
		}
		old = l.Old
	})
	return old, err
}

// owner says which stamps are this store's.
func (h *host) owner(ctx context.Context) (provisioner.Owner, error) {
	record, err := h.hostRecord(ctx)
	return provisioner.Owner{Namespace: h.config().Namespace, Lineage: record.Lineage}, err
}

// compareAge looks for instances that prove the store an older copy: those
// stamped at a revision that it never had. It then forgets what was known, for
// everything to be found again, as after the loss of a store.
func (h *host) compareAge(ctx context.Context, t spec.ContainerType, known *spec.HostStatus, instances []containerbroker.Instance) error {
	owner, err := h.owner(ctx)
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
	if err := h.updateHost(ctx, func(r *spec.HostRecord) { r.Lineage.Old = true }); err != nil {
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
	if err := (loggedEvents{h.store, h.logger}).Record(ctx, event); err != nil {
		return fmt.Errorf("cannot record that the store is an older copy: %w", err)
	}
	if h.relearn != nil {
		h.relearn()
	}
	return nil
}

// takeBack returns the instances of the store that was lost, which are all that
// bear our namespace, and keeps the ids of the stores that stamped them. In a
// store that lost nothing they are those of its own stamps.
func (h *host) takeBack(ctx context.Context, instances []containerbroker.Instance) ([]containerbroker.Instance, error) {
	owner, err := h.owner(ctx)
	if err != nil {
		return nil, err
	}
	former := maps.Clone(owner.Lineage.Former)
	if former == nil {
		former = map[string]int64{}
	}
	for _, i := range instances {
		if i.Stamp == nil || i.Stamp.Namespace != owner.Namespace || !h.young && !h.lost.Load() {
			continue
		}
		if origin := owner.Lineage.Of(i.Stamp.Store); origin == spec.OriginAnother || origin == spec.OriginBeyond {
			id, revision := spec.SplitMark(i.Stamp.Store)
			former[id] = max(former[id], revision)
		}
	}
	if !maps.Equal(former, owner.Lineage.Former) {
		owner.Lineage.Former = former
		if err := h.updateHost(ctx, func(r *spec.HostRecord) { r.Lineage.Former = former }); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(instances, func(i containerbroker.Instance) bool { return !owner.Owns(i) }), nil
}

// renew gives a store that was found to be an older copy an id of its own once
// all is found: stamps made after the copy are no proof any more, and those of
// instances without a record stay out of harvest's reach.
func (h *host) renew(ctx context.Context) error {
	record, err := h.hostRecord(ctx)
	if err != nil || !record.Lineage.Old {
		return err
	}
	return h.updateHost(ctx, func(r *spec.HostRecord) {
		l := &r.Lineage
		if l.Former == nil {
			l.Former = map[string]int64{}
		}
		l.Former[l.ID] = max(l.Former[l.ID], l.Opened)
		l.ID, l.Old = newToken(), false
	})
}
