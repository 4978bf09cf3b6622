package provisioner

import (
	"time"

	"hostler/agent/reconcile"
)

// longestPause is the longest delay between two tries of a step whose failure
// is not recorded in a status.
const longestPause = 5 * time.Minute

// pauseFor delays the next try of a step whose failure is not recorded in a
// status, e.g. because an orphan has no record or the store refuses writes. The
// delays start at RetryDelay and double.
func (w *Worker) pauseFor(name string, err error) {
	pauses := reconcile.Backoff{Base: w.currentConfig().RetryDelay, Max: longestPause}
	now := w.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused.Add(name, 0, err, now, func(n int) time.Duration { return jittered(pauses.After(n), name, n) })
}

// pausedUntil returns the earliest time for the next try of a step for the
// name. Zero means now. An event about the name ends the pause.
func (w *Worker) pausedUntil(name string, nudged map[string]bool, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if nudged[name] {
		return time.Time{}
	}
	return w.paused.Until(name, 0, now)
}
