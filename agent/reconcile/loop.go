// Package reconcile is the loop that every worker runs: something wakes it,
// it makes one pass over everything, and it sleeps until the next wake-up,
// the next retry that is due, or the resync tick. A wake-up never says what
// changed, only that it is time to look again.
package reconcile

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Waker collects wake-ups; many before a pass count as one. The zero value is
// not usable: NewWaker.
type Waker struct {
	ch   chan struct{}
	late atomic.Bool // a signal is on its way
}

// NewWaker returns a waker that has been signalled once, so that a loop over
// it starts with a pass.
func NewWaker() *Waker {
	w := &Waker{ch: make(chan struct{}, 1)}
	w.Signal()
	return w
}

// Signal asks for a pass. It never blocks and may be called from anywhere.
func (w *Waker) Signal() {
	select {
	case w.ch <- struct{}{}:
	default:
	}
}

// SignalWithin asks for a pass within d. All such wishes of that time count as
// one: it is for what need not be looked at one by one.
func (w *Waker) SignalWithin(d time.Duration) {
	if w.late.Swap(true) {
		return
	}
	time.AfterFunc(d, func() {
		w.late.Store(false)
		w.Signal()
	})
}

// Loop calls Pass once per wake-up, one at a time.
type Loop struct {
	Waker *Waker
	// Pass looks at everything and starts what is needed. It returns when it
	// wants to be called again at the latest (zero: no such time).
	Pass func(ctx context.Context) (time.Time, error)
	// Resync is the longest time between two passes; 0: none.
	Resync time.Duration
	// ErrorDelay tells the delay after the nth failed pass in a row (n ≥ 1).
	ErrorDelay func(n int) time.Duration
	Now        func() time.Time
	Logger     *slog.Logger
}

// Run makes passes until ctx ends, which is no error. A failing pass is made
// again after ErrorDelay, or at the next wake-up.
func (l *Loop) Run(ctx context.Context) error {
	failed := 0
	var due time.Time
	for {
		if err := l.sleep(ctx, due); err != nil {
			return nil //nolint:nilerr // the end of ctx is how a loop is stopped
		}
		next, err := l.Pass(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			failed++
			due = l.Now().Add(l.ErrorDelay(failed))
			l.Logger.Warn("The pass failed and will be made again.", "error", err, "attempt", failed)
		default:
			failed = 0
			due = next
		}
	}
}

// sleep returns at the next wake-up, at due, or after Resync.
func (l *Loop) sleep(ctx context.Context, due time.Time) error {
	wait := l.Resync
	if !due.IsZero() {
		if d := max(due.Sub(l.Now()), 0); wait == 0 || d < wait {
			wait = d
		}
		if wait == 0 {
			return ctx.Err()
		}
	}
	var timeout <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.Waker.ch:
	case <-timeout:
	}
	return nil
}

// ErrorDelay waits 1 s after the first failed pass in a row and doubles that
// up to longest.
func ErrorDelay(longest time.Duration) func(n int) time.Duration {
	b := Backoff{Base: time.Second, Max: longest}
	return func(n int) time.Duration { return b.Next(n, nil) }
}

// Ended is nil when a worker was told to stop: whatever failed then failed
// because of it.
func Ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
