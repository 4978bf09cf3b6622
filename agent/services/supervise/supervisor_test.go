package supervise

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A worker that fails or panics is restarted after growing delays, and the
// other workers go on.
func TestSupervisorStartsFailedWorkersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := New(slog.New(slog.DiscardHandler), time.Now)
		begin := time.Now()
		var at []time.Duration
		s.Start(ctx, "bad", func(ctx context.Context) error {
			at = append(at, time.Since(begin))
			switch len(at) {
			case 1:
				return errors.New("no")
			case 2:
				panic("worse")
			}
			<-ctx.Done()
			return nil
		})
		var starts atomic.Int64
		s.Start(ctx, "good", func(ctx context.Context) error { starts.Add(1); <-ctx.Done(); return nil })
		synctest.Wait()
		if rows := s.List(); rows[0].State != "failed" || !strings.Contains(rows[0].Message, "no") || rows[1].State != "running" {
			t.Errorf("workers %+v", rows)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(at) != 3 || at[1] != time.Second || at[2] != 3*time.Second {
			t.Errorf("started at %v", at)
		}
		s.Start(ctx, "good", func(context.Context) error { t.Error("started twice"); return nil })
		s.Stop("good")
		s.Stop("good")
		if starts.Load() != 1 {
			t.Errorf("good was started %d times", starts.Load())
		}
		cancel()
		s.Wait()
	})
}
