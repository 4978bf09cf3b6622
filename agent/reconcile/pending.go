package reconcile

import "time"

// Pending reports whether a recorded due time is still in the future. A time
// further away than the longest delay was recorded before the clock was set
// back, and counts as due.
func Pending(due, now time.Time, longest time.Duration) bool {
	return due.After(now) && !due.After(now.Add(longest))
}
