package containersetup

import (
	"context"
	"maps"
	"time"
)

// clearing is what is known of the runs of Clear.
type clearing struct {
	// failures are the failed attempts that it ran after, by machine.
	failures map[string]int
	// cleared is when it ran, again when it is to run though nothing fails.
	cleared, again time.Time
}

// clear runs Clear where it is due and returns when it is due anyway; zero:
// only after a failure.
func (w *Worker) clear(ctx context.Context, seen seen) time.Time {
	if w.Clear == nil {
		return time.Time{}
	}
	maps.DeleteFunc(w.failures, func(name string, count int) bool { return seen.failures[name] < count })
	now := w.Now()
	failed := seen.failedSince(w.failures) && now.Sub(w.cleared) >= w.ClearEvery
	if w.prepared && !failed && (w.again.IsZero() || now.Before(w.again)) {
		return w.again
	}
	more := w.Clear(ctx)
	w.failures, w.cleared, w.again = seen.failures, w.Now(), time.Time{}
	if more {
		w.again = w.cleared.Add(w.RestEvery)
	}
	return w.again
}
