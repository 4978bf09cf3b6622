package reconcile

import (
	"context"
	"sync"
)

// Limiter limits the number of concurrent operations. The limit can change
// while operations run. Waiters are served in order of arrival.
type Limiter struct {
	mu      sync.Mutex
	limit   int
	running int
	queue   []chan struct{}
}

// NewLimiter returns a limiter for n concurrent operations (at least 1).
func NewLimiter(n int) *Limiter { return &Limiter{limit: max(n, 1)} }

// SetLimit changes the limit. Lowering it stops no running operation.
func (l *Limiter) SetLimit(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = max(n, 1)
	l.admit()
}

// Acquire waits for a place; it returns ctx's error if ctx ends first.
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
	// The place came while ctx ended, so it is passed on.
	l.running--
	l.admit()
	return ctx.Err()
}

// TryAcquire takes a place if one is free and no caller is waiting. It returns
// whether it took one.
func (l *Limiter) TryAcquire() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 || l.running >= l.limit {
		return false
	}
	l.running++
	return true
}

// Idle reports whether no place is taken.
func (l *Limiter) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running == 0
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
