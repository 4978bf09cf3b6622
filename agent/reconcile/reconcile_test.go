package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// S19: 30 s doubling to 30 min.
func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	b := Backoff{Base: 30 * time.Second, Max: 30 * time.Minute}
	want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 30 * time.Minute, 30 * time.Minute}
	for i, w := range want {
		if got := b.Next(i+1, nil); got != w {
			t.Errorf("attempt %d: %s, want %s", i+1, got, w)
		}
	}
	b.Jitter = 0.1
	if got := b.Next(1, func() float64 { return 0.5 }); got != 31500*time.Millisecond {
		t.Errorf("with jitter: %s", got)
	}
}

func TestBackoffWithoutBound(t *testing.T) {
	b := Backoff{Base: time.Second, Max: math.MaxInt64}
	for _, attempt := range []int{1, 60, 64, 1000, math.MaxInt} {
		if got := b.Next(attempt, nil); got <= 0 {
			t.Errorf("attempt %d: %v", attempt, got)
		}
	}
}

// Wake-ups merge. Passes run at the start, when due, and after failures with
// growing delays.
func TestLoopWakesWhenItShould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var at []time.Duration
		results := []struct {
			next time.Duration
			err  error
		}{{next: 5 * time.Second}, {err: errors.New("no")}, {err: errors.New("no")}, {}, {}}
		f := NewFrame(Common{Resync: time.Minute, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
		work := Work{
			Pass: func(context.Context) (time.Time, error) {
				at = append(at, time.Since(start))
				r := results[len(at)-1]
				if len(at) == len(results) {
					cancel()
				}
				if r.next == 0 {
					return time.Time{}, r.err
				}
				return time.Now().Add(r.next), r.err
			},
		}
		f.Signal()
		f.Signal()
		f.loop(ctx, work)
		want := []time.Duration{0, 5 * time.Second, 6 * time.Second, 8 * time.Second, 68 * time.Second}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("pass %d at %s, want %s", i, at[i], want[i])
			}
		}
	})
}

func TestLimiterIsBoundedAndResizable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(2)
		var running, most atomic.Int64
		for range 6 {
			go func() {
				if err := l.Acquire(t.Context()); err != nil {
					t.Error(err)
					return
				}
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Second)
				running.Add(-1)
				l.Release()
			}()
		}
		time.Sleep(500 * time.Millisecond)
		if running.Load() != 2 {
			t.Errorf("%d run at once, want 2", running.Load())
		}
		l.SetLimit(4)
		synctest.Wait()
		if running.Load() != 4 {
			t.Errorf("%d run at once, want 4", running.Load())
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if running.Load() != 0 || most.Load() != 4 {
			t.Errorf("%d still run; at most %d ran at once, want 4", running.Load(), most.Load())
		}
	})
}

func TestLimiterServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1)
		served := make(chan int, 6)
		for i := range 6 {
			time.Sleep(time.Millisecond) // callers queue in a fixed order
			go func() {
				if err := l.Acquire(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				served <- i
				l.Release()
			}()
		}
		for want := range 6 {
			if got := <-served; got != want {
				t.Errorf("served %d, want %d", got, want)
			}
		}
	})
}

// A caller that gives up waiting holds no place.
func TestLimiterDropsCancelledWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1)
		if err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		l.Release()
		if err := l.Acquire(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The first of many changes makes a pass at once, the others one pass per
// interval; after a quiet time the next is the first again.
func TestSpacedSignalsOfABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, start := newWaker(), time.Now()
		<-w.ch // the signal of a new waker
		var at []time.Duration
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				select {
				case <-w.ch:
					at = append(at, time.Since(start))
				case <-ctx.Done():
				}
			}
		}()
		for range 25 { // until 264 ms
			w.SignalSpaced(100 * time.Millisecond)
			synctest.Wait()
			time.Sleep(11 * time.Millisecond)
		}
		time.Sleep(time.Second)
		w.SignalSpaced(100 * time.Millisecond)
		synctest.Wait()
		cancel()
		synctest.Wait()
		want := []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 1275 * time.Millisecond}
		if !slices.Equal(at, want) {
			t.Errorf("signals at %v, want %v", at, want)
		}
	})
}

func TestLimiterIsIdleWithoutOperations(t *testing.T) {
	l := NewLimiter(2)
	if !l.Idle() || !l.TryAcquire() || l.Idle() {
		t.Error("idle with a taken place, or busy without")
	}
	if l.Release(); !l.Idle() {
		t.Error("busy after the last operation")
	}
}
