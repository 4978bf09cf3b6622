package provisioner

import (
	"context"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// progress returns a function that writes the driver's progress into the
// machine's status. To spare the store, it drops a report that comes within
// progressInterval after the last one. It also drops reports that come after
// the operation has begun other work.
func (o *operation) progress(ctx context.Context) containerbroker.Progress {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.phase++
	phase, status := o.phase, o.d.Status
	return func(s containerbroker.Report) {
		o.mu.Lock()
		defer o.mu.Unlock()
		now := o.w.Now()
		if o.phase != phase || now.Sub(o.reported) < progressInterval {
			return
		}
		o.reported = now
		status.Message, status.Percent = s.Message, percentOf(s.Percent)
		o.w.Progress(ctx, reconcile.StatusWrite(o.d.id(), o.d.UID, status))
	}
}

// progressInterval is the shortest time between two written progress reports.
const progressInterval = 500 * time.Millisecond

// show writes the message of the current work into the machine's status. If the
// write fails, the operation goes on.
func (o *operation) show(ctx context.Context, message string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.phase++
	o.say(message)
	o.w.Progress(ctx, reconcile.StatusWrite(o.d.id(), o.d.UID, o.d.Status))
}

// announce is show for work that must not begin while the store refuses to record it.
func (o *operation) announce(ctx context.Context, message string) error {
	o.mu.Lock()
	o.say(message)
	o.mu.Unlock()
	return o.save(ctx)
}

func (o *operation) say(message string) {
	s := &o.d.Status
	s.State, s.Message, s.Percent = spec.MachineProvisioning, message, nil
	if o.d.Life != state.Alive {
		s.State = spec.MachineDying
	}
	s.ObservedGeneration = o.d.Generation
}

// percentOf returns a pointer to percent, or nil if percent is negative
// (unknown).
func percentOf(percent int) *int {
	if percent < 0 {
		return nil
	}
	return &percent
}
