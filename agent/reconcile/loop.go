// Package reconcile provides the loop that every worker runs. A wake-up starts
// one pass over everything; then the loop sleeps until the next wake-up, the
// next due retry, or the resync tick. A wake-up carries no details, e.g. which
// object changed: the pass looks at everything.
package reconcile

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Waker collects wake-ups; all wake-ups before a pass merge into a single
// wake-up. The zero value is not usable; use NewWaker.
type Waker struct {
	ch   chan struct{}
	late atomic.Bool // a delayed signal is pending
}

// NewWaker returns a waker that has been signalled once, so that a loop starts
// with a pass.
func NewWaker() *Waker {
	w := &Waker{ch: make(chan struct{}, 1)}
	w.Signal()
	return w
}

// Signal requests a pass. It never blocks and is safe for concurrent use.
func (w *Waker) Signal() {
	select {
	case w.ch <- struct{}{}:
	default:
	}
}

// SignalWithin requests a pass within d. Requests in that time merge into one
// pass: use it for bursts of changes.
func (w *Waker) SignalWithin(d time.Duration) {
	if w.late.Swap(true) {
		return
	}
	time.AfterFunc(d, func() {
		w.late.Store(false)
		w.Signal()
	})
}

// Loop calls Pass once per wake-up, never concurrently.
type Loop struct {
	Waker *Waker
	// Pass observes everything and starts the needed operations. It returns the
	// latest time of the next pass (zero: no limit).
	Pass func(ctx context.Context) (time.Time, error)
	// Resync is the longest time between two passes; 0: none.
	Resync time.Duration
	// ErrorDelay returns the delay after the nth failed pass in a row (n ≥ 1).
	ErrorDelay func(n int) time.Duration
	Now        func() time.Time
	Logger     *slog.Logger
}

// Run makes passes until ctx ends, and then returns nil. It repeats a failed
// pass after ErrorDelay, or at the next wake-up.
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
			l.Logger.Warn("The pass failed and will be retried.", "error", err, "attempt", failed)
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

// ErrorDelay returns delays that start at 1 s and double with each failed pass,
// up to longest.
func ErrorDelay(longest time.Duration) func(n int) time.Duration {
	b := Backoff{Base: time.Second, Max: longest}
	return func(n int) time.Duration { return b.Next(n, nil) }
}

// Ended returns nil if ctx has ended, since the worker was stopped and err is a
// consequence; otherwise it returns err.
func Ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
