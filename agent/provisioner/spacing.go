package provisioner

import "time"

// listingShare bounds the share of the time that listings take if nothing waits for
// them: the pause before the next one is so many times as long as the last one took.
// The listing of many instances takes the hypervisor seconds on a busy host, in which
// it makes no machine.
const listingShare = 10

// longestSettled is the longest pause before the pass that follows an operation whose
// result is written.
const longestSettled = 10 * time.Second

// listingTimes are the durations of the last listings.
type listingTimes struct{ plain, detailed time.Duration }

// settled returns the time within which a pass follows an operation whose result is
// already written.
func (l listingTimes) settled() time.Duration {
	return max(gatherSettled, min(listingShare*l.plain, longestSettled))
}

// address returns the delay until the next read of the addresses that are missing.
// It is at least delay and at most longest.
func (l listingTimes) address(delay, longest time.Duration) time.Duration {
	return max(delay, min(listingShare*l.detailed, longest))
}

// took notes the duration of a listing.
func (l *listingTimes) took(d time.Duration, detail bool) {
	if detail {
		l.detailed = d
	} else {
		l.plain = d
	}
}
