package flight

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"hostler/internal/fault"
)

func newGroup() *Group[string, int] {
	return &Group[string, int]{Log: slog.New(slog.DiscardHandler)}
}

// Work that panics is an error for all its callers, and ends nothing else.
func TestPanickingFlightLands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		start := make(chan struct{})
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := g.Do(t.Context(), "bad", nil, func(context.Context, func(string)) (int, error) { <-start; panic("bad archive") })
				errs <- err
			}()
		}
		synctest.Wait()
		close(start)
		for range 2 {
			if err := <-errs; !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "panic: bad archive") {
				t.Errorf("got %v", err)
			}
		}
		if n, err := g.Do(t.Context(), "bad", nil, func(context.Context, func(string)) (int, error) { return 7, nil }); n != 7 || err != nil {
			t.Errorf("the key is not free again: %d, %v", n, err)
		}
	})
}

// A caller that joins gets the last report and the result; the work goes on
// after the first caller leaves.
func TestJoinedCallersShareProgressAndResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		finish := make(chan struct{})
		first, leave := context.WithCancel(t.Context())
		left := make(chan error)
		runs := 0
		go func() {
			_, err := g.Do(first, "a", nil, func(ctx context.Context, report func(string)) (int, error) {
				runs++
				report("half")
				<-finish
				report("half")
				report("whole")
				return runs, ctx.Err()
			})
			left <- err
		}()
		synctest.Wait()
		var heard []string
		joined := make(chan int)
		go func() {
			n, err := g.Do(t.Context(), "a", func(s string) { heard = append(heard, s) }, nil)
			if err != nil {
				t.Error(err)
			}
			joined <- n
		}()
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the first caller: %v", err)
		}
		close(finish)
		if n := <-joined; n != 1 || !slices.Equal(heard, []string{"half", "whole"}) {
			t.Errorf("result %d, heard %q", n, heard)
		}
	})
}

// The last caller that leaves cancels the work and returns after its end. A
// caller in between starts new work.
func TestLastCallerCancelsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		ctx, cancel := context.WithCancel(t.Context())
		cleaned, clean := false, make(chan struct{})
		left := make(chan error)
		go func() {
			_, err := g.Do(ctx, "a", nil, func(ctx context.Context, _ func(string)) (int, error) {
				<-ctx.Done()
				<-clean
				cleaned = true
				return 1, ctx.Err()
			})
			left <- err
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if n, err := g.Do(t.Context(), "a", nil, func(context.Context, func(string)) (int, error) { return 2, nil }); n != 2 || err != nil {
			t.Errorf("a later caller joined cancelled work: %d, %v", n, err)
		}
		close(clean)
		if err := <-left; !errors.Is(err, context.Canceled) || !cleaned {
			t.Errorf("%v, cleaned %v", err, cleaned)
		}
	})
}
