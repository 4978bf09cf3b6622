package containersetup

import (
	"context"
	"maps"
	"time"
)

// clearing is what is known of the runs of Clear.
type clearing struct {
	// failures are the failed attempts that it ran after, by machine, and
	// failedAt is when it last ran after one.
	failures map[string]int
	failedAt time.Time
	// again is when it is to run though nothing fails.
	again time.Time
}

// clear runs Clear where it is due and returns when it is due next; zero: after
// the next failure.
func (w *Worker) clear(ctx context.Context, seen seen) time.Time {
	if w.Clear == nil {
		return time.Time{}
	}
	maps.DeleteFunc(w.failures, func(name string, count int) bool { return seen.failures[name] < count })
	due := w.again
	failed := seen.failedSince(w.failures)
	if failed {
		if at := w.failedAt.Add(w.ClearEvery); due.IsZero() || at.Before(due) {
			due = at
		}
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
