package containersetup

import (
	"context"
	"maps"
	"time"

	"hostler/agent/reconcile"
)

// clearing is the state of the runs of Clear.
type clearing struct {
	// failures are the failed attempts that Clear has handled, by machine.
	// failedAt is the time of its last run after a failure.
	failures map[string]int
	failedAt time.Time
	// again is the time of the next run independent of failures; zero: none.
	again time.Time
}

// clear runs Clear if due, and returns the next due time; zero means after the
// next failure.
func (w *Worker) clear(ctx context.Context, seen seen) time.Time {
	if w.Clear == nil {
		return time.Time{}
	}
	maps.DeleteFunc(w.failures, func(name string, count int) bool { return seen.failures[name] < count })
	due := w.again
	failed := seen.failedSince(w.failures)
	if failed {
		due = reconcile.Earliest(due, w.failedAt.Add(w.ClearEvery))
	}
	now := w.Now()
	if w.prepared && (due.IsZero() || now.Before(due)) {
		return due
	}
	if w.prepared && failed {
		w.failedAt = now
	}
	more := w.Clear(ctx)
	w.failures, w.again = seen.failures, time.Time{}
	if more {
		w.again = w.Now().Add(w.RestEvery)
	}
	return w.again
}
