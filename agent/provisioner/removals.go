package provisioner

import (
	"context"
	"sync"
	"time"
)

// removals tracks the removals of a pass. The creates of that pass wait for
// them, so that leftovers of an earlier attempt are gone first.
type removals struct {
	left sync.WaitGroup
	gone chan struct{}
}

// removalsTimeout bounds that wait, so that a removal that hangs does not
// hold up every machine.
const removalsTimeout = time.Minute

// close ends the wait when the last removal has ended. The caller calls it
// once, after it has added all removals.
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
