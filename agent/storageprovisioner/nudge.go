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
	// leastWait is the pause between a first failure and a retry that an event
	// causes; it doubles with each further failure, up to mostWait. Events come
	// in bursts, and most concern other devices.
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

// gather is the time within which events about devices are collected into one
// pass; they come in bursts.
const gather = 200 * time.Millisecond

// acting marks device events until the given time as caused by the worker
// itself.
func (w *Worker) acting(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = until
}

// nudge adds failing entities to nudged if an event since the last look
// concerns them: a block device changed, or a machine was removed or let the
// entity go. Entities whose pause has not ended are postponed; again is the end
// of the earliest pause.
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

// devicesBear reports whether a change of block devices may clear the entity's
// failure.
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

// await retries the entity when one of the processes that hold it ends (Z24).
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
