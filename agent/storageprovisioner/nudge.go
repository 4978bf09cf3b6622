package storageprovisioner

import (
	"context"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/storage"
)

const (
	// ownEventsPause is the time after an operation during which the kernel may
	// still send events about the operation's own changes to block devices.
	ownEventsPause = time.Second
	// leastWait is the shortest time from a first failure to a retry that an
	// event causes. It doubles with each further failure, up to mostWait,
	// because events come in bursts and most concern other devices.
	leastWait = 5 * time.Second
	mostWait  = 5 * time.Minute
)

// followDevices wakes the worker when block devices change.
func (w *Worker) followDevices(ctx context.Context) {
	if w.Devices == nil {
		return
	}
	events, err := w.Devices(ctx)
	if err != nil {
		w.Logger.Warn("Block devices cannot be watched; the agent polls them.", "error", err)
		return
	}
	w.Tasks.Go(func() { reconcile.Receive(ctx, events, w.deviceChanged) })
}

func (w *Worker) deviceChanged(struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Now().Before(w.quiet) {
		return // an effect of the worker's own operation
	}
	w.devices = true
	w.SignalWithin(gather)
}

// gather is the delay of a pass after an event about a device. Such events come
// in bursts, and those within this time share one pass.
const gather = 200 * time.Millisecond

// machinesGather is the shortest time between two passes for changed machines.
// Most of these changes only write a status, and of a status this worker only
// needs to know which storage the machine uses.
const machinesGather = 100 * time.Millisecond

// acting makes the worker ignore device events until the given time, because
// its own operations cause them.
func (w *Worker) acting(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = until
}

// nudge adds an entity with a failure to nudged if an event since the last look
// may have ended the cause. Such events are a change of a block device, the
// removal of a machine and the end of a machine's use of the entity. If
// leastWait has not passed, nudge postpones the entity. again is the earliest
// end of such a pause.
func (w *Worker) nudge(l look, nudged map[string]bool) (again time.Time) {
	w.mu.Lock()
	devices := w.devices
	w.devices = false
	w.mu.Unlock()
	now := make(map[string]Machine, len(l.desired.Machines))
	for _, g := range l.desired.Machines {
		now[g.Name] = g
	}
	had := w.had
	w.had = now
	before := w.postponed
	w.postponed = map[string]bool{}
	for i := range l.desired.Entities {
		e := &l.desired.Entities[i]
		bears := before[e.key()] || devices && w.devicesBear(e)
		for machine := range e.Status.Attachments {
			before, had := had[machine]
			after, there := now[machine]
			bears = bears || had && (!there || before.Status.InUse(e.key()) && !after.Status.InUse(e.key()))
		}
		rested, failing := restedAt(e)
		switch {
		case !bears || !failing:
		case !rested.After(l.policy.Now):
			nudged[e.key()] = true
		default:
			w.postponed[e.key()] = true
			again = reconcile.Earliest(again, rested)
		}
	}
	return again
}

// devicesBear reports whether a change of block devices may end the cause of
// the entity's failure.
func (w *Worker) devicesBear(e *Entity) bool {
	return e.Kind == spec.KindVolume && failedAction(e.Status) != ActionCreate || e.Filesystem.Volume != ""
}

// restedAt returns the time from which an event may cause a retry, and whether
// any action of the entity is failing.
func restedAt(e *Entity) (at time.Time, failing bool) {
	all := []spec.Attempts{e.Status.Attempts}
	for _, o := range e.Status.Others {
		all = append(all, o.Attempts)
	}
	for _, a := range e.Status.Attachments {
		all = append(all, a.Attempts)
	}
	for _, a := range all {
		if a.NextRetry == nil {
			continue
		}
		failing = true
		rest := min(leastWait<<min(max(a.Count-1, 0), 10), mostWait)
		failed := a.NextRetry.Add(-delays.After(a.Count))
		if t := failed.Add(rest); t.After(at) {
			at = t
		}
	}
	return at, failing
}

// await makes the worker try the entity again when one of the processes that
// hold it ends.
func (w *Worker) await(ctx context.Context, key string, holders []storage.Holder) {
	if w.WaitHolders == nil || len(holders) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting[key] {
		return
	}
	w.waiting[key] = true
	w.Tasks.Go(func() {
		err := w.WaitHolders(ctx, holders)
		w.mu.Lock()
		delete(w.waiting, key)
		w.mu.Unlock()
		if err == nil {
			w.nudges.Add(key)
			w.Signal()
		}
	})
}
