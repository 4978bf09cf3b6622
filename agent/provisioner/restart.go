package provisioner

import (
	"context"
	"fmt"

	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// restart makes the changes that need a restart and restarts the instance.
func (o *operation) restart(ctx context.Context, s Step) error {
	if len(s.Changes) > 0 {
		if err := o.updateBeforeRestart(ctx, s); err != nil {
			return err
		}
	}
	o.show(ctx, "restarting")
	if err := o.power(ctx, containerbroker.PowerRestart); err != nil {
		return err
	}
	o.d.Status.RestartedFor = restartedFor(o.d, s.Changes)
	o.event(ctx, state.LevelInfo, "Restarted", s.Detail)
	return o.ready(ctx)
}

// updateBeforeRestart makes changes that no longer show as a difference once
// made, although the instance runs without them until its restart. It first
// records durably that a restart is owed, so that a later pass restarts the
// instance if this operation is cut short.
func (o *operation) updateBeforeRestart(ctx context.Context, s Step) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	done := o.d.Status.RestartsDone
	o.d.Status.RestartsDone = o.d.Record.RestartRequest - 1
	err := o.save(ctx)
	if err == nil {
		if err = o.update(ctx, s); fault.Is(err, fault.Transient) {
			return err // the changes may have been made despite the error
		}
	}
	if err != nil {
		o.d.Status.RestartsDone = done
	}
	return err
}

// resume lets a frozen instance run on. It is not a start, so an owed restart
// stays owed.
func (o *operation) resume(ctx context.Context) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	o.show(ctx, "resuming")
	opCtx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := o.w.Broker.SetPower(opCtx, o.d.instanceName(), containerbroker.PowerStart, stopTimeout); err != nil {
		return fmt.Errorf("cannot resume the instance: %w", err)
	}
	o.d.Status.RetriesDone = o.d.Record.RetryRequest
	o.event(ctx, state.LevelInfo, "Resumed", "")
	return o.ready(ctx)
}
