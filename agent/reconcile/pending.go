package reconcile

import "time"

// Pending says whether a due time that was written down is still to be waited
// for. One that lies further off than the longest delay there can be was
// written before the clock was set back, and is due.
func Pending(due, now time.Time, longest time.Duration) bool {
	return due.After(now) && !due.After(now.Add(longest))
}
