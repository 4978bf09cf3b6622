package provisioner

// maxQueued bounds the creates that have begun but wait for an image or a slot,
// because each of them writes its progress to the shared store. Further creates
// begin as the queue empties. Other operations are not counted, so that e.g. a
// restart does not wait for a slow image.
const maxQueued = 256

// queueUp reports whether the operation can begin now, and adds a create to the
// queue. If the queue is full, it keeps the machine's nudge for the next pass.
func (w *Worker) queueUp(o *operation, nudged map[string]bool) bool {
	if a := o.steps[0].Action; a != ActionCreate && a != ActionRecreate {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queued >= maxQueued {
		w.more = true
		name := o.steps[0].Machine
		if nudged[name] || nudged[nudgeAll] || nudged[nudgeWant] || nudged[nudgeWant+name] {
			w.nudges.Add(name)
		}
		return false
	}
	w.queued++
	o.queued = true
	return true
}

// leaveQueue removes an operation from the queue. The operation calls it when
// it gets a slot or ends.
func (w *Worker) leaveQueue(o *operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !o.queued {
		return
	}
	o.queued = false
	w.queued--
	// Wake the worker only when the queue is half empty, because a pass reads
	// all machines.
	if w.more && w.queued <= maxQueued/2 {
		w.more = false
		w.SignalWithin(gather)
	}
}
