// Package flight lets concurrent callers share work. Callers with the same key
// get the result of one run.
package flight

import (
	"context"
	"log/slog"
	"sync"

	"hostler/internal/fault"
)

// Group holds the running work by key. R is the type of progress reports, T the
// type of results. Set Log before the first use.
type Group[R comparable, T any] struct {
	Log *slog.Logger

	mu  sync.Mutex
	all map[string]*flight[R, T]
}

// flight is running work. It is cancelled when its last caller leaves.
type flight[R comparable, T any] struct {
	done   chan struct{}
	cancel context.CancelFunc

	// waiting and landed are guarded by Group.mu.
	waiting int
	landed  bool

	mu        sync.Mutex // guards the fields below
	listeners map[int]func(R)
	next      int
	last      *R

	result T
	err    error
}

// Do runs work under the key. If work with this key already runs, Do waits for
// the result of that work instead. The work continues as long as at least one
// caller waits. A panic in the work becomes an error for all callers. listen,
// which may be nil, receives the last report and all further reports, without
// repetitions; it must not block.
func (g *Group[R, T]) Do(ctx context.Context, key string, listen func(R), work func(ctx context.Context, report func(R)) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	g.mu.Lock()
	f := g.all[key]
	first := f == nil
	var workCtx context.Context
	if first {
		f = &flight[R, T]{done: make(chan struct{}), listeners: map[int]func(R){}}
		workCtx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		if g.all == nil {
			g.all = map[string]*flight[R, T]{}
		}
		g.all[key] = f
	}
	f.waiting++
	g.mu.Unlock()
	defer f.listen(listen)()
	if first { // this caller listens already, so it misses no report
		go g.run(workCtx, key, f, work)
	}

	select {
	case <-f.done:
		return f.result, f.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	f.waiting--
	last := f.waiting == 0 && !f.landed
	if last {
		// No caller may join work that is being cancelled.
		delete(g.all, key)
		f.cancel()
	}
	g.mu.Unlock()
	if last {
		// Wait until the work has removed its temporary files and ended its
		// processes.
		<-f.done
	}
	return none, ctx.Err()
}

// run does the work of a flight and wakes its callers.
func (g *Group[R, T]) run(ctx context.Context, key string, f *flight[R, T], work func(context.Context, func(R)) (T, error)) {
	f.result, f.err = fault.Recovering(g.Log, key, func() (T, error) { return work(ctx, f.report) })
	f.cancel()
	g.mu.Lock()
	f.landed = true
	if g.all[key] == f {
		delete(g.all, key)
	}
	g.mu.Unlock()
	close(f.done)
}

func (f *flight[R, T]) report(r R) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && *f.last == r {
		return
	}
	f.last = &r
	for _, l := range f.listeners {
		l(r)
	}
}

func (f *flight[R, T]) listen(l func(R)) (leave func()) {
	if l == nil {
		return func() {}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.next
	f.next++
	f.listeners[id] = l
	if f.last != nil {
		l(*f.last)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.listeners, id)
	}
}
