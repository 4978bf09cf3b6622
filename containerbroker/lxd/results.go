package lxd

import (
	"context"
	"sync"
	"time"

	"github.com/canonical/lxd/shared/api"
)

// results passes the ends of LXD's operations from the event stream to the
// callers that wait for them, which saves a request for each operation. A
// caller asks LXD if no stream is open or if the end does not arrive.
type results struct {
	mu sync.Mutex
	// streams counts the open event streams.
	streams int
	// ended holds, by id, operations that ended before their caller waited.
	ended   map[string]endedOperation
	waiting map[string]chan api.Operation
}

type endedOperation struct {
	op api.Operation
	at time.Time
}

const (
	// resultTime is how long an end for which no caller waits yet is kept, and
	// how long a caller waits for the stream before it asks LXD.
	resultTime = 2 * time.Second
	// maxResults bounds the kept ends for which no caller waits, e.g. ends of
	// other clients' operations.
	maxResults = 256
)

// follow records that an event stream is open. stop records that it has closed.
func (r *results) follow() (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams++
	if r.ended == nil {
		r.ended, r.waiting = map[string]endedOperation{}, map[string]chan api.Operation{}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.streams--; r.streams > 0 {
			return
		}
		for _, ch := range r.waiting {
			close(ch)
		}
		clear(r.waiting)
		clear(r.ended)
	}
}

// note handles the event of an operation from the stream.
func (r *results) note(op api.Operation) {
	if !op.StatusCode.IsFinal() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ch, waits := r.waiting[op.ID]; waits {
		ch <- op // ch has room for one operation and gets only one
		delete(r.waiting, op.ID)
		return
	}
	for id, e := range r.ended {
		if time.Since(e.at) > resultTime {
			delete(r.ended, id)
		}
	}
	if len(r.ended) < maxResults {
		r.ended[op.ID] = endedOperation{op, time.Now()}
	}
}

// await returns the end of an operation from the event stream. It returns false
// if the caller must ask LXD.
func (r *results) await(ctx context.Context, id string) (api.Operation, bool) {
	r.mu.Lock()
	if e, ok := r.ended[id]; ok {
		delete(r.ended, id)
		r.mu.Unlock()
		return e.op, true
	}
	if r.streams == 0 {
		r.mu.Unlock()
		return api.Operation{}, false
	}
	ch := make(chan api.Operation, 1)
	r.waiting[id] = ch
	r.mu.Unlock()

	limit := time.NewTimer(resultTime)
	defer limit.Stop()
	select {
	case op, ok := <-ch:
		return op, ok
	case <-ctx.Done():
	case <-limit.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, id)
	select {
	case op, ok := <-ch:
		return op, ok
	default:
		return api.Operation{}, false
	}
}
