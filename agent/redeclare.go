package agent

import (
	"context"
	"fmt"

	"hostler/agent/conffiles"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// applier puts declarations in force; the server of agent/api implements it.
type applier interface {
	conffiles.Applier
	// Redeclare creates again the objects that were declared again while they
	// were being removed. Awaits says whether there are any.
	Redeclare(ctx context.Context) error
	Awaits() bool
}

// redeclare is the worker that creates again the objects that were declared
// again while they were being removed.
func (h *host) redeclare(a applier) func(context.Context) error {
	return func(ctx context.Context) error {
		changes, err := h.store.Watch(ctx, spec.KindMachine, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem)
		if err != nil {
			return fmt.Errorf("cannot watch the store: %w", err)
		}
		for first := true; ; first = false {
			ids, open := <-changes
			if !open {
				return ctx.Err()
			}
			gone, err := h.anyGone(ctx, ids, a)
			if err == nil && (gone || first) { // an earlier agent may have died between removal and Redeclare
				err = a.Redeclare(ctx)
			}
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("cannot create the removed objects again: %w", err)
			}
		}
	}
}

// anyGone says whether an object was removed while declarations wait for such a
// removal.
func (h *host) anyGone(ctx context.Context, ids []state.ID, a applier) (bool, error) {
	if !a.Awaits() {
		return false, nil
	}
	for _, id := range ids {
		if _, err := h.store.Get(ctx, id); fault.Is(err, fault.NotFound) {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
	return false, nil
}
