package provisioner

import (
	"context"
	"fmt"

	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// restart makes the changes that need one, and restarts the instance.
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

// updateBeforeRestart makes changes of which nothing tells, once they are
// made, that the instance runs without them: the restart is asked for first,
// durably, so that one which is cut short is made up for.
func (o *operation) updateBeforeRestart(ctx context.Context, s Step) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	done := o.d.Status.RestartsDone
	o.d.Status.RestartsDone = o.d.Record.RestartRequest - 1
	err := o.save(ctx)
	if err == nil {
		if err = o.update(ctx, s); fault.Is(err, fault.Transient) {
			return err // they may have been made all the same
		}
	}
	if err != nil {
		o.d.Status.RestartsDone = done
	}
	return err
}

// resume lets an instance that stands still go on: that is no start, and what
// is owed a restart still is.
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
