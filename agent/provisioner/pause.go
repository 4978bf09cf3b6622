package provisioner

import (
	"time"

	"hostler/agent/reconcile"
)

// pause is the wait before the next try of what failed and could not be
// written down: an unknown instance has no record, and the store may refuse
// writes. It lives in memory only.
type pause struct {
	failures int
	until    time.Time
}

// longestPause is the longest wait between two such tries.
const longestPause = 5 * time.Minute

// pauseFor makes the name wait: as long as a retry at first, doubling.
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

// unpause forgets the failures of a name.
func (w *Worker) unpause(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.paused, name)
}

// pausedUntil is when the name may be tried again; an event that bears on it
// ends the wait.
func (w *Worker) pausedUntil(name string, nudged map[string]bool) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if nudged[name] {
		return time.Time{}
	}
	return w.paused[name].until
}
