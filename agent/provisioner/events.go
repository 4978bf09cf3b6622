package provisioner

import (
	"context"
	"strings"
	"time"

	"hostler/agent/reconcile"
	"hostler/containerbroker"
	"hostler/internal/failpoint"
)

// echo is the time after an operation of the worker during which an event on
// the same machine counts as caused by the operation. Such events wake the
// worker but do not shorten a retry's delay.
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

// nudge wakes the worker for an event at once, or within the time gather if an
// operation of the worker on the instance has just ended. It ignores events on
// busy machines, since the end of their operation wakes the worker.
func (w *Worker) nudge(e containerbroker.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.Instance != "" && w.busy[e.Instance]:
		return
	case e.Instance != "" && w.Now().Sub(w.ended[e.Instance]) <= echo:
		if lateEvents[e.Action] && len(w.busy) > 0 {
			w.SignalWithin(w.listings.settled())
		} else {
			w.SignalWithin(gather)
		}
		return
	case e.Instance != "":
		w.nudges.Add(e.Instance)
	case strings.HasSuffix(e.Action, "-created"):
		// A machine may have failed because it lacked this new image, pool or
		// network.
		w.nudges.Add(nudgeWant)
	}
	w.Signal()
}

// gather is the delay before the pass that follows the end of an operation
// while other operations run. Operations that end within this time share one
// pass, because each pass makes the hypervisor list its instances, and the
// operations can wait that long.
const gather = 200 * time.Millisecond

// gatherSettled replaces gather for a machine that became ready or was removed.
// The result is already written, so a pass has nothing to do for the machine. It is
// longer if listings are slow; see listingTimes.
const gatherSettled = time.Second

// lateEvents are the actions of events that report the success of an operation
// after the worker has written its result. For example, LXD sends "started"
// after it has ended the operation.
var lateEvents = map[string]bool{"created": true, "started": true, "updated": true, "deleted": true}

// nudgeAll in the set of nudged machines stands for all machines.
const nudgeAll = "*"

// nudgeWant in the set of nudged machines stands for all machines that may have
// failed because an image, pool or network was missing. Failures that need the
// operator are excluded. Before a machine's name (e.g. "+web") it means that
// such an object appeared while the machine was busy. Most often the machine's
// own operation made the object. Therefore the machine's next try is at once
// only if its operation failed with NotFound.
const nudgeWant = "+"

// NudgeAll returns a set of nudges that makes every pending retry due at once.
func NudgeAll() map[string]bool { return map[string]bool{nudgeAll: true} }
