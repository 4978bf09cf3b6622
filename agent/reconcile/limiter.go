package reconcile

import (
	"context"
	"sync"
)

// Limiter bounds how many operations run at once; the bound can be changed
// while operations run. Waiters are served in the order they came.
type Limiter struct {
	mu      sync.Mutex
	limit   int
	running int
	queue   []chan struct{}
}

// NewLimiter returns a limiter for n operations at once (at least 1).
func NewLimiter(n int) *Limiter { return &Limiter{limit: max(n, 1)} }

// SetLimit changes the bound. Lowering it stops no running operation.
func (l *Limiter) SetLimit(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = max(n, 1)
	l.admit()
}

// Acquire waits for a place; it returns ctx's error when that ends first.
func (l *Limiter) Acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	ticket := make(chan struct{})
	l.queue = append(l.queue, ticket)
	l.admit()
	l.mu.Unlock()

	select {
	case <-ticket:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, q := range l.queue {
		if q == ticket {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			return ctx.Err()
		}
	}
	// Admitted while giving up: hand the place on.
	l.running--
	l.admit()
	return ctx.Err()
}

// TryAcquire takes a place if one is free and no caller waits for one.
func (l *Limiter) TryAcquire() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 || l.running >= l.limit {
		return false
	}
	l.running++
	return true
}

// Release gives a place back.
func (l *Limiter) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	l.admit()
}

func (l *Limiter) admit() {
	for len(l.queue) > 0 && l.running < l.limit {
		close(l.queue[0])
		l.queue = l.queue[1:]
		l.running++
	}
}
