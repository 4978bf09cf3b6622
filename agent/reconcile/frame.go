package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"hostler/agent/state"
)

// Metrics counts a worker's passes and operations.
type Metrics interface {
	Pass(took time.Duration, err error)
	Operation(action string, took time.Duration, err error)
}

// Common are the dependencies and settings that all workers share.
type Common struct {
	Store   state.Backend
	Metrics Metrics // nil means that nothing is counted
	Now     func() time.Time
	Logger  *slog.Logger
	// Notice sets a notice in the host's status, or clears it if text is "". If
	// Notice is nil, notices are dropped.
	Notice func(key, text string)
	// Relaxed is true if the worker's statuses are written relaxed; see
	// state.Write. Such statuses hold only results, which the next pass finds
	// again, and no decisions.
	Relaxed bool
	// Resync is the longest time between two passes. 0 means DefaultResync in a
	// worker that compares the host with the declarations, and no limit in others.
	Resync time.Duration
}

// DefaultResync is the Resync of a worker whose observations may miss an event.
const DefaultResync = 2 * time.Minute

// Frame is the part of a worker that does not depend on the kinds of objects.
// It watches the store, makes passes, counts them, and writes the results. A
// worker embeds it and supplies the pass.
type Frame struct {
	Common
	*Waker
	// Tasks are the goroutines that end before Run returns.
	Tasks sync.WaitGroup

	mu    sync.Mutex
	wrote map[state.ID]int64 // the revisions last written
}

// NewFrame returns the frame of a worker.
func NewFrame(c Common) *Frame {
	if c.Notice == nil {
		c.Notice = func(string, string) {}
	}
	return &Frame{Common: c, Waker: newWaker(), wrote: map[state.ID]int64{}}
}

// Work is the part of a worker that the frame runs.
type Work struct {
	// Objects names the watched objects in errors, e.g. "machines"; Kinds are
	// their kinds.
	Objects string
	Kinds   []string
	// Changed wakes the worker for changed objects. Nil means that every change
	// wakes the worker at once.
	Changed func(ctx context.Context, ids []state.ID)
	// Begin is called before the first pass, e.g. to subscribe to events, so that
	// none is missed after the pass. It must start its goroutines with
	// Frame.Tasks, and they must end with ctx. Nil means that there is nothing to
	// begin.
	Begin func(ctx context.Context)
	// Pass observes everything and starts the needed operations. It is called once
	// per wake-up, never concurrently, and returns the latest time of the next
	// pass, or zero for no limit.
	Pass func(ctx context.Context) (time.Time, error)
	// LongestDelay is the longest delay after a failed pass. 0 means 30 s.
	LongestDelay time.Duration
}

// Run makes passes until ctx ends. It returns an error when the watch on the
// store is lost; the supervisor then starts the worker again.
func (f *Frame) Run(parent context.Context, w Work) error {
	ctx, cancel := context.WithCancel(parent)
	defer f.Tasks.Wait()
	defer cancel()
	ids, err := f.Store.Watch(ctx, w.Kinds...)
	if err != nil {
		return ended(parent, fmt.Errorf("cannot watch the declared %s: %w", w.Objects, err))
	}
	changed := w.Changed
	if changed == nil {
		changed = func(context.Context, []state.ID) { f.Signal() }
	}
	f.Tasks.Go(func() {
		defer cancel()
		Receive(ctx, ids, func(ids []state.ID) { changed(ctx, ids) })
	})
	if w.Begin != nil {
		w.Begin(ctx)
	}
	f.loop(ctx, w)
	return ended(parent, fmt.Errorf("cannot go on: the watch on the declared %s ended", w.Objects))
}

// ended returns nil if ctx has ended, since the worker was stopped and err is a
// consequence; otherwise it returns err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Count counts an operation that took this long.
func (f *Frame) Count(action string, took time.Duration, err error) {
	if f.Metrics != nil {
		f.Metrics.Operation(action, took, err)
	}
}

// Receive calls each() for every value until the channel is closed or ctx ends.
func Receive[T any](ctx context.Context, values <-chan T, each func(T)) {
	for {
		select {
		case <-ctx.Done():
			return
		case v, open := <-values:
			if !open {
				return
			}
			each(v)
		}
	}
}

// Follow calls each() for every event until ctx ends, and opens a lost stream
// again. It wakes the worker when the stream is lost, because the source may
// hang. It wakes the worker again when the new stream is open, because events
// may have been missed.
func Follow[T any](ctx context.Context, f *Frame, open func(context.Context) (<-chan T, error), each func(T)) {
	const first, longest = time.Second, 30 * time.Second
	delay := first
	for ctx.Err() == nil {
		events, err := open(ctx)
		if err == nil {
			delay = first
			f.Signal()
			Receive(ctx, events, each)
			f.Signal()
		} else {
			f.Logger.Debug("Events cannot be followed; the agent polls.", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
			delay = min(2*delay, longest)
		}
	}
}

// Earliest returns the earliest of the times; zero times are left out.
func Earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}
