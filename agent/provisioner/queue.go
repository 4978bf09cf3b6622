package provisioner

// maxQueued bounds the operations that are begun and have had no place among
// those that run: each writes to the store how far it is, which all others
// share. The rest are begun as these get their places.
const maxQueued = 256

// queueUp says whether an operation may be begun. The nudge of one that may not
// is kept.
func (w *Worker) queueUp(o *operation, nudged map[string]bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queued >= maxQueued {
		w.more = true
		if name := o.steps[0].Machine; nudged[name] || nudged[nudgeAll] {
			w.nudged[name] = true
		}
		return false
	}
	w.queued++
	o.queued = true
	return true
}

// leaveQueue is called when an operation has its place, and when it ends.
func (w *Worker) leaveQueue(o *operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !o.queued {
		return
	}
	o.queued = false
	w.queued--
	// Not for each of them: a pass looks at all machines.
	if w.more && w.queued <= maxQueued/2 {
		w.more = false
		w.waker.SignalWithin(gather)
	}
}
