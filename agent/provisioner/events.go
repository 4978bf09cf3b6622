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

// echo is how long after an operation of ours events on its machine are taken
// for its echo: they say look again, but do not cut a retry's delay short.
const echo = 2 * time.Second

// followEvents turns the hypervisor's events into wake-ups. A lost stream is
// looked into at once, since the hypervisor may hang, and taken up again, with
// another look at everything.
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

// nudge has an event looked into: at once, but for those that an operation of
// ours causes. A busy machine is looked at when its operation ends.
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
		// An image, a pool or a network came into being: what failed for want
		// of it may go now.
		w.nudged[nudgeWant] = true
	}
	w.waker.Signal()
}

// concerns says whether a change of these objects asks for a look now: what
// an operation writes of its own machine does not.
func (w *Worker) concerns(changed []state.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(changed, func(id state.ID) bool {
		return id.Kind != spec.KindMachine || !w.busy[id.Name]
	})
}

// gather is how long the ends of operations are gathered while others run: a
// look costs the hypervisor more than the operations gain by an earlier one.
const gather = 200 * time.Millisecond

// nudgeAll in the set of nudged machines stands for all of them.
const nudgeAll = "*"

// nudgeWant in the set of nudged machines stands for those whose failure may
// have been for want of something, which what needs a person was not. Before a
// machine's name it says that the thing came while the machine was busy: most
// often it came by that operation, and only one that did not find it is made
// again.
const nudgeWant = "+"

// NudgeAll is the set of nudges under which no retry waits for its time.
func NudgeAll() map[string]bool { return map[string]bool{nudgeAll: true} }
