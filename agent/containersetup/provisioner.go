package containersetup

import (
	"context"
	"fmt"
	"time"

	"hostler/agent/state"
)

// provisionerState is the state of the type's provisioner.
type provisionerState struct {
	look     time.Time // time of the next check
	asked    int64     // generation of the type's object at the last check
	reported string    // the reported reason why it does not run; empty if it runs
}

// ensureProvisioner starts the provisioner. If the provisioner can end by
// itself, it also checks that the provisioner runs, every LookEvery and when an
// operator requests a retry. It returns the time of the next check, or zero for
// none.
func (w *Worker) ensureProvisioner(ctx context.Context, generation int64) (time.Time, error) {
	generation = max(generation, 1) // the generation of a new object
	unit, fallible := w.Provisioner.(fallible)
	if fallible && w.started.Load() && (generation > w.asked || !w.Now().Before(w.look)) {
		why, err := unit.Down(ctx)
		if err != nil {
			return time.Time{}, fmt.Errorf("cannot see whether the %s provisioner runs: %w", w.Type, err)
		}
		if why != "" {
			w.Logger.Warn("The provisioner does not run and is started again.", "type", w.Type, "reason", why)
			w.event(ctx, state.LevelWarn, "ProvisionerEnded", why)
			w.started.Store(false)
			w.reported = why
		}
		w.look = w.Now().Add(w.LookEvery)
	}
	w.asked = generation
	if !w.started.Load() {
		if err := w.Provisioner.Start(ctx); err != nil {
			w.unstarted(ctx, err)
			return time.Time{}, fmt.Errorf("cannot start the %s provisioner: %w", w.Type, err)
		}
		w.started.Store(true)
		w.look = w.Now().Add(w.LookEvery)
		if w.reported != "" {
			w.Logger.Info("The provisioner runs again.", "type", w.Type)
			w.event(ctx, state.LevelInfo, "ProvisionerStarted", "")
			w.reported = ""
		}
	}
	if !fallible {
		return time.Time{}, nil
	}
	return w.look, nil
}

// unstarted records that the provisioner cannot be started, in one event per
// cause. If the provisioner is known to be down, the statuses of its machines
// then say that they wait.
func (w *Worker) unstarted(ctx context.Context, cause error) {
	if ctx.Err() != nil {
		return
	}
	if w.reported != cause.Error() {
		w.reported = cause.Error()
		w.event(ctx, state.LevelError, "ProvisionerNotStarted", w.reported)
	}
	if unit, ok := w.Provisioner.(fallible); ok {
		if why, err := unit.Down(ctx); err == nil && why != "" {
			w.updateMachines(ctx, w.reported)
		}
	}
}
