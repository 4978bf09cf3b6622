package provisioner

import (
	"context"
	"strings"
	"time"

	"hostler/agent/reconcile"
	"hostler/containerbroker"
	"hostler/internal/failpoint"
)

// echo is the time after an operation of ours during which events on its
// machine count as caused by it. Such events wake the worker but do not shorten
// a retry's delay.
const echo = 2 * time.Second

// followEvents wakes the worker for the hypervisor's events.
func (w *Worker) followEvents(ctx context.Context, source containerbroker.EventSource) {
	reconcile.Follow(ctx, w.Frame, func(ctx context.Context) (<-chan containerbroker.Event, error) {
		events, err := source.Events(ctx)
		if err == nil {
			err = failpoint.Hit(failpoint.LXDEventResync)
		}
		return events, err
	}, w.nudge)
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
		if lateEvents[e.Action] && len(w.busy) > 0 {
			w.SignalWithin(gatherReady)
		} else {
			w.SignalWithin(gather)
		}
		return
	case e.Instance != "":
		w.nudges.Add(e.Instance)
	case strings.HasSuffix(e.Action, "-created"):
		// A new image, pool or network may be the thing that a failed machine
		// lacked.
		w.nudges.Add(nudgeWant)
	}
	w.Signal()
}

// gather is how long the ends of operations are collected into one pass while
// others run. A pass costs the hypervisor more than the operations gain from an
// earlier one.
const gather = 200 * time.Millisecond

// gatherReady replaces gather for a machine that became ready: its status is
// written, so that a pass has nothing to do for it.
const gatherReady = time.Second

// lateEvents are the actions of events that report the success of an operation,
// whose result is written already. For example, LXD sends "started" after it
// has ended the operation.
var lateEvents = map[string]bool{"created": true, "started": true, "updated": true}

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
