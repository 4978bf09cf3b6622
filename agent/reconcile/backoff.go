package reconcile

import (
	"math"
	"time"
)

// Backoff doubles a delay with each attempt.
type Backoff struct {
	// Base is the delay after the first attempt, Max the limit.
	Base, Max time.Duration
	// Jitter is the maximum random increase of a delay, e.g. 0.1 for 10 %.
	Jitter float64
}

// After returns the delay after the nth attempt, without jitter.
func (b Backoff) After(attempt int) time.Duration { return b.Next(attempt, nil) }

// Next returns the delay after the nth attempt (n ≥ 1). rnd() returns a number
// in [0, 1). If rnd is nil, there is no jitter.
func (b Backoff) Next(attempt int, rnd func() float64) time.Duration {
	d := max(b.Base, 0)
	for i := 1; i < attempt && 0 < d && d < b.Max; i++ {
		if d > b.Max/2 {
			d = b.Max // doubling might overflow a Duration
			break
		}
		d *= 2
	}
	d = min(d, b.Max)
	if rnd != nil {
		d += min(time.Duration(float64(d)*b.Jitter*rnd()), math.MaxInt64-d)
	}
	return d
}
