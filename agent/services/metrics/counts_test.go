package metrics

import (
	"context"
	"errors"
	"testing"
	"time"

	"hostler/agent/workerapi"
)

// Counts that the agent does not accept, e.g. while it is away, are kept within
// bounds and sent with the next report. Without counts there is no report.
func TestCountsOutliveTheAgentsAbsence(t *testing.T) {
	c, sent := NewCounts(), make(chan workerapi.Counts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Send(ctx, func(_ context.Context, n workerapi.Counts) error {
			select {
			case sent <- n:
			case <-ctx.Done():
			}
			return errors.New("the agent is away")
		}, time.Millisecond)
	}()
	c.Pass(time.Second, nil)
	<-sent
	for range workerapi.MaxCounts + 10 {
		c.Operation("create", -time.Second, errors.New("no"))
	}
	if n := <-sent; len(n.Passes) != 1 || len(n.Operations) == 0 || len(n.Operations) > workerapi.MaxCounts || n.Operations[0].Seconds != 0 || !n.Operations[0].Failed {
		t.Errorf("told %d passes, %d operations, first %+v", len(n.Passes), len(n.Operations), n.Operations[0])
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := c.take(); len(n.Passes) != 1 || len(n.Operations) == 0 || len(n.Operations) > workerapi.MaxCounts {
		t.Errorf("kept %d passes, %d operations", len(n.Passes), len(n.Operations))
	}
}
