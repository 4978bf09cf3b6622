// Package reconcile provides the parts that all workers share, so that a worker
// only observes, plans and acts. A wake-up starts one pass over everything;
// then the loop sleeps until the next wake-up, the next due retry, or the
// resync tick. A wake-up carries no details, e.g. which object changed, because
// the pass looks at everything.
package reconcile

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Waker collects wake-ups; all wake-ups before a pass merge into a single
// wake-up. The zero value is not usable; use newWaker.
type Waker struct {
	ch chan struct{}

	mu     sync.Mutex
	due    time.Time // time of the earliest delayed signal; zero if there is none
	spaced time.Time // time of the latest signal of SignalSpaced()
	waits  bool      // another signal of SignalSpaced() is due
}

// newWaker returns a waker that has been signalled once, so that a loop starts
// with a pass.
func newWaker() *Waker {
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
// pass, which begins at the earliest of the requested times. Use it for bursts
// of changes.
func (w *Waker) SignalWithin(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := time.Now().Add(d)
	if !w.due.IsZero() && !due.Before(w.due) {
		return
	}
	w.due = due
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.due.Equal(due) {
			w.due = time.Time{}
			w.Signal()
		}
	})
}

// SignalSpaced requests a pass at once. If its previous request was made less
// than d ago, the new request is delayed until d has passed. Use it for objects
// that change often, where the first change of a burst must not wait.
func (w *Waker) SignalSpaced(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waits {
		return
	}
	wait := d - time.Since(w.spaced)
	if wait <= 0 {
		w.spaced = time.Now()
		w.Signal()
		return
	}
	w.waits = true
	time.AfterFunc(wait, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.waits, w.spaced = false, time.Now()
		w.Signal()
	})
}

// loop makes one pass per wake-up until ctx ends. It repeats a failed pass after
// growing delays, or at the next wake-up.
func (f *Frame) loop(ctx context.Context, w Work) {
	delays := Backoff{Base: time.Second, Max: cmp.Or(w.LongestDelay, 30*time.Second)}
	failed := 0
	var due time.Time
	for f.sleep(ctx, due) {
		began := f.Now()
		next, err := w.Pass(ctx)
		if f.Metrics != nil {
			f.Metrics.Pass(f.Now().Sub(began), err)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failed++
			due = f.Now().Add(delays.After(failed))
			f.Logger.Warn("The pass failed and will be retried.", "error", err, "attempt", failed)
		default:
			failed, due = 0, next
		}
	}
}

// sleep returns at the next wake-up, at due, or after Resync. It returns false
// if ctx has ended.
func (f *Frame) sleep(ctx context.Context, due time.Time) bool {
	wait := f.Resync
	if !due.IsZero() {
		if d := max(due.Sub(f.Now()), 0); wait == 0 || d < wait {
			wait = d
		}
		if wait == 0 {
			return ctx.Err() == nil
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
		return false
	case <-f.ch:
	case <-timeout:
	}
	return true
}
