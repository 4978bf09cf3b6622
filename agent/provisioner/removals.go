package provisioner

import (
	"context"
	"sync"
	"time"
)

// removals are what one pass takes away. What it makes waits for them, so
// that what is left of an earlier attempt is gone first.
type removals struct {
	left sync.WaitGroup
	gone chan struct{}
}

// patienceForRemovals bounds that wait: one removal that hangs must not hold
// up every machine.
const patienceForRemovals = time.Minute

// close lets the waiting go on when the last removal has ended. It is called
// once, when all removals are known.
func (r *removals) close() {
	go func() {
		r.left.Wait()
		close(r.gone)
	}()
}

func (r *removals) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patienceForRemovals)
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
