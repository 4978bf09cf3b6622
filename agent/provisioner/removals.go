package provisioner

import (
	"context"
	"sync"
	"time"
)

// removals tracks the removals of a pass. The creates of the same pass wait for
// the removals, so that leftovers of an earlier attempt are gone first.
type removals struct {
	left sync.WaitGroup
	gone chan struct{}
}

// removalsTimeout bounds the wait of the creates, so that a removal that hangs
// does not delay every machine.
const removalsTimeout = time.Minute

// close makes wait() return once the last removal has ended. The caller calls
// close once, after it has added all removals.
func (r *removals) close() {
	go func() {
		r.left.Wait()
		close(r.gone)
	}()
}

func (r *removals) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removalsTimeout)
	defer cancel()
	select {
	case <-r.gone:
	case <-ctx.Done():
		if err := context.Cause(ctx); err != context.DeadlineExceeded { //nolint:errorlint // the cause itself, not a chain
			return err
		}
	}
	return nil
}
