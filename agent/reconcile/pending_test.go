package reconcile

import (
	"testing"
	"time"
)

// F22: a due time within the longest delay is waited for; a due time recorded
// by a clock that ran a year ahead is due.
func TestF22DueTimesOfAClockThatRanAheadAreDue(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for off, want := range map[time.Duration]bool{
		-time.Second: false, 0: false, time.Nanosecond: true, time.Minute: true,
		time.Minute + time.Nanosecond: false, 365 * 24 * time.Hour: false,
	} {
		if got := Pending(now.Add(off), now, time.Minute); got != want {
			t.Errorf("due in %s: pending %v", off, got)
		}
	}
}
