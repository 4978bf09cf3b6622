package provisioner

import (
	"context"
	"slices"
	"strings"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/failpoint"
)

// echo is the time after an operation of ours during which events on its
// machine count as caused by it. Such events wake the worker but do not shorten
// a retry's delay.
const echo = 2 * time.Second

// followEvents wakes the worker for the hypervisor's events. After a lost
// stream it wakes the worker at once, since the hypervisor may hang, and once
// more when the next stream begins, for the events in between.
func (w *Worker) followEvents(ctx context.Context, source containerbroker.EventSource) {
	delay := time.Second
	for ctx.Err() == nil {
		events, err := source.Events(ctx)
		if err == nil {
			if err = failpoint.Hit(failpoint.LXDEventResync); err == nil {
				delay = time.Second
				w.waker.Signal()
				w.drain(events)
				w.waker.Signal()
			}
		}
		if err != nil {
			w.Logger.Debug("The hypervisor's events cannot be followed.", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
			delay = min(2*delay, 30*time.Second)
		}
	}
}

func (w *Worker) drain(events <-chan containerbroker.Event) {
	for e := range events {
		w.nudge(e)
	}
}

// nudge wakes the worker for an event: at once, or within gather if an
// operation of ours just ended on the instance. It ignores events on busy
// machines, since the end of their operation wakes the worker.
func (w *Worker) nudge(e containerbroker.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.Instance != "" && w.busy[e.Instance]:
		return
	case e.Instance != "" && w.Now().Sub(w.ended[e.Instance]) <= echo:
		w.waker.SignalWithin(gather)
		return
	case e.Instance != "":
		w.nudged[e.Instance] = true
	case strings.HasSuffix(e.Action, "-created"):
		// A new image, pool or network may be the thing that a failed machine
		// lacked.
		w.nudged[nudgeWant] = true
	}
	w.waker.Signal()
}

// concerns says whether a change of these objects needs a pass now. Changes to
// busy machines do not: their own operation writes them.
func (w *Worker) concerns(changed []state.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(changed, func(id state.ID) bool {
		return id.Kind != spec.KindMachine || !w.busy[id.Name]
	})
}

// gather is how long the ends of operations are collected into one pass while
// others run. A pass costs the hypervisor more than the operations gain from an
// earlier one.
const gather = 200 * time.Millisecond

// nudgeAll in the set of nudged machines stands for all of them.
const nudgeAll = "*"

// nudgeWant in the set of nudged machines stands for all machines whose failure
// may come from a missing image, pool or network; failures that need the
// operator are excluded. Before a machine's name (e.g. "+web") it says that
// such an object appeared while the machine was busy. Most often the machine's
// own operation made the object, so only an operation that failed with NotFound
// is retried at once.
const nudgeWant = "+"

// NudgeAll returns a set of nudges with which every pending retry is due at
// once.
func NudgeAll() map[string]bool { return map[string]bool{nudgeAll: true} }
