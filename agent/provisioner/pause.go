package provisioner

import (
	"time"

	"hostler/agent/reconcile"
)

// pause is the delay before the next try of a step whose failure cannot be
// recorded: an orphan has no record, and the store may refuse writes. A pause
// lives in memory only.
type pause struct {
	failures int
	until    time.Time
}

// longestPause is the longest delay between two such tries.
const longestPause = 5 * time.Minute

// pauseFor sets the delay for a name, starting at RetryDelay and doubling.
func (w *Worker) pauseFor(name string) {
	delay := w.currentConfig().RetryDelay
	now := w.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.paused[name]
	p.failures++
	p.until = now.Add(jittered(reconcile.Backoff{Base: delay, Max: longestPause}.Next(p.failures, nil), name, p.failures))
	w.paused[name] = p
}

// unpause clears the failures of a name.
func (w *Worker) unpause(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.paused, name)
}

// pausedUntil returns the time from which a step for the name may be tried
// again. An event about the name ends the pause.
func (w *Worker) pausedUntil(name string, nudged map[string]bool) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if nudged[name] {
		return time.Time{}
	}
	return w.paused[name].until
}
