package agent

import (
	"context"
	"slices"
	"time"

	"hostler/agent/conffiles"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
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
// again while they were being removed. Its first pass does so for an earlier
// agent that died between a removal and Redeclare.
func (h *host) redeclare(a applier) func(context.Context) error {
	return func(ctx context.Context) error {
		common := h.common("remake")
		common.Metrics = nil
		f := reconcile.NewFrame(common)
		return f.Run(ctx, reconcile.Work{
			Objects: "objects", Kinds: []string{spec.KindMachine, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem},
			Changed: func(ctx context.Context, ids []state.ID) {
				gone := func(id state.ID) bool { _, err := h.store.Get(ctx, id); return err != nil }
				if a.Awaits() && slices.ContainsFunc(ids, gone) {
					f.Signal()
				}
			},
			Pass: func(ctx context.Context) (time.Time, error) { return time.Time{}, a.Redeclare(ctx) },
		})
	}
}
