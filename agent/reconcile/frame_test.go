package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler/agent/state"
)

// watched is a store that only watches.
type watched struct {
	state.Backend
	ids chan []state.ID
	err error
}

func (w watched) Watch(context.Context, ...string) (<-chan []state.ID, error) { return w.ids, w.err }

// passes counts the passes.
type passes struct{ well, failed atomic.Int64 }

func (p *passes) Operation(string, time.Duration, error) {}

func (p *passes) Pass(_ time.Duration, err error) {
	if err != nil {
		p.failed.Add(1)
		return
	}
	p.well.Add(1)
}

// A change makes a pass, every pass is counted, and Run ends after the
// worker's goroutines.
func TestFrameRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, counted := watched{ids: make(chan []state.ID)}, &passes{}
		f := NewFrame(Common{Store: store, Metrics: counted, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		var ends atomic.Int64
		slowly := func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ends.Add(1)
		}
		ended, begun := make(chan error, 1), false
		fail := errors.New("no")
		go func() {
			ended <- f.Run(ctx, Work{
				Objects: "things", Begin: func(ctx context.Context) {
					begun = true
					f.Tasks.Go(func() { slowly(ctx) })
				},
				Pass: func(ctx context.Context) (time.Time, error) {
					if !begun {
						t.Error("a pass before the beginning")
					}
					if counted.well.Load() == 0 {
						f.Tasks.Go(func() { slowly(ctx) })
						return time.Time{}, nil
					}
					return time.Time{}, fail
				},
			})
		}()
		synctest.Wait()
		store.ids <- []state.ID{{Kind: "thing", Name: "a"}}
		synctest.Wait()
		if counted.well.Load() != 1 || counted.failed.Load() != 1 {
			t.Errorf("%d passes and %d failed, want 1 and 1", counted.well.Load(), counted.failed.Load())
		}
		cancel()
		if err := <-ended; err != nil || ends.Load() != 2 {
			t.Errorf("%v after the end of %d", err, ends.Load())
		}
	})
}

// A lost watch is an error.
func TestFrameEndsWithItsWatch(t *testing.T) {
	closed := make(chan []state.ID)
	close(closed)
	for _, c := range []struct {
		store watched
		want  string
	}{{watched{ids: closed}, "cannot go on: the watch on the declared things ended"}, {watched{err: errors.New("no")}, "cannot watch the declared things: no"}} {
		f := NewFrame(Common{Store: c.store, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
		work := Work{Objects: "things", Pass: func(context.Context) (time.Time, error) { return time.Time{}, nil }}
		if err := f.Run(t.Context(), work); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.Run(ctx, work); err != nil {
			t.Errorf("stopped: %v", err)
		}
	}
}

// A lost stream is opened again, after growing delays while that fails, with
// passes at its end and at its next begin.
func TestFollowOpensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFrame(Common{Logger: slog.New(slog.DiscardHandler)})
		<-f.ch
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var opened []time.Duration
		var got atomic.Int64
		stream := make(chan int)
		f.Tasks.Go(func() {
			Follow(ctx, f, func(context.Context) (<-chan int, error) {
				opened = append(opened, time.Since(start))
				if len(opened) < 4 {
					return nil, errors.New("no")
				}
				return stream, nil
			}, func(n int) { got.Add(int64(n)) })
		})
		time.Sleep(10 * time.Second)
		<-f.ch // the stream has begun
		stream <- 2
		synctest.Wait()
		select {
		case <-f.ch:
			t.Error("an event woke the worker by itself")
		default:
		}
		close(stream)
		synctest.Wait()
		<-f.ch // it has ended
		cancel()
		f.Tasks.Wait()
		if want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}; got.Load() != 2 || len(opened) != len(want) {
			t.Errorf("got %d; opened at %v", got.Load(), opened)
		}
	})
}

func TestEarliest(t *testing.T) {
	now := time.Now()
	if got := Earliest(time.Time{}, now.Add(2), time.Time{}, now.Add(1)); got != now.Add(1) || !Earliest(time.Time{}).IsZero() {
		t.Errorf("%v", got)
	}
}
