package reconcile

import (
	"sync"
	"time"

	"hostler/agent/spec"
	"hostler/internal/fault"
)

// Failed counts a failed attempt. delay() returns the time until the next
// attempt for the number of attempts so far. If delay is nil, the next attempt
// needs a cause, e.g. a changed declaration.
func Failed(a *spec.Attempts, kind fault.Kind, now time.Time, delay func(attempt int) time.Duration) {
	a.Count++
	a.ErrorKind, a.NextRetry = string(kind), nil
	if delay != nil {
		next := now.Add(delay(a.Count))
		a.NextRetry = &next
	}
}

// Gate reports whether another attempt is permitted, and its earliest time,
// which is zero for now. It is pure. longest is the longest delay; see Pending.
func Gate(a spec.Attempts, now time.Time, longest time.Duration) (open bool, after time.Time) {
	switch {
	case a.NextRetry == nil:
		return a.ErrorKind == "", time.Time{}
	case Pending(*a.NextRetry, now, longest):
		return true, *a.NextRetry
	}
	return true, time.Time{}
}

// Pending reports whether a recorded due time is still in the future. A time
// further away than the longest delay was recorded before the clock was set
// back, and counts as due.
func Pending(due, now time.Time, longest time.Duration) bool {
	return due.After(now) && !due.After(now.Add(longest))
}

// Failure is a failed operation that is not recorded in the store, because the
// object has no record or the delays are too short to outlive the agent.
type Failure struct {
	spec.Attempts
	// Generation is the object's generation at the last attempt.
	Generation int64
	Err        error
}

// Failures are the failures of a worker by key, e.g. an object's uid.
type Failures map[string]Failure

// Add counts a failed attempt and returns the failure.
func (f Failures) Add(key string, generation int64, err error, now time.Time, delay func(attempt int) time.Duration) Failure {
	failure := Failure{f[key].Attempts, generation, err}
	Failed(&failure.Attempts, fault.KindOf(err), now, delay)
	f[key] = failure
	return failure
}

// Until returns the time before which the operation must not be repeated. It
// returns zero if the operation may be repeated now, e.g. because its object
// has a new generation.
func (f Failures) Until(key string, generation int64, now time.Time) time.Time {
	failure, failed := f[key]
	if !failed || failure.Generation != generation || failure.NextRetry == nil || !failure.NextRetry.After(now) {
		return time.Time{}
	}
	return *failure.NextRetry
}

// Nudges collect the keys of objects that had an event, so that the next pass
// repeats their failed operations at once.
type Nudges struct {
	mu   sync.Mutex
	keys map[string]bool
}

// Add adds a key. It does not wake the worker.
func (n *Nudges) Add(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.keys == nil {
		n.keys = map[string]bool{}
	}
	n.keys[key] = true
}

// Take returns the keys and clears them.
func (n *Nudges) Take() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	keys := n.keys
	n.keys = nil
	if keys == nil {
		keys = map[string]bool{}
	}
	return keys
}
