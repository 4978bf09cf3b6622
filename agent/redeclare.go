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

// applier applies declarations. The server of agent/api implements it.
type applier interface {
	conffiles.Applier
	// Redeclare creates objects again that a document declared while they were
	// being removed. Awaits reports whether such objects exist.
	Redeclare(ctx context.Context) error
	Awaits() bool
	// SetMigration records the progress of a machine's migration.
	SetMigration(ctx context.Context, name, uid string, m spec.Migration) error
}

// redeclare is the worker that creates objects again that a document declared
// while they were being removed. Its first pass also creates the objects that
// an earlier agent left out because it died between a removal and Redeclare.
func (h *host) redeclare(a applier) func(context.Context) error {
	return func(ctx context.Context) error {
		common := h.common("remake")
		common.Metrics = nil
		f := reconcile.NewFrame(common)
		return f.Run(ctx, reconcile.Work{
			Objects: "objects", Kinds: []string{spec.KindDeclaration, spec.KindMachine, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem},
			Changed: func(ctx context.Context, ids []state.ID) {
				// The last removal may have ended before the document that awaits it was
				// written.
				due := func(id state.ID) bool {
					_, err := h.store.Get(ctx, id)
					return err != nil || id.Kind == spec.KindDeclaration
				}
				if a.Awaits() && slices.ContainsFunc(ids, due) {
					f.Signal()
				}
			},
			Pass: func(ctx context.Context) (time.Time, error) { return time.Time{}, a.Redeclare(ctx) },
		})
	}
}
