package images

import (
	"context"
	"log/slog"
	"sync"

	"hostler/internal/fault"
)

// flights lets concurrent callers with the same key share the work. The work
// continues as long as at least one caller waits.
type flights struct {
	log *slog.Logger
	mu  sync.Mutex
	all map[string]*flight
}

type flight struct {
	done   chan struct{}
	cancel context.CancelFunc

	// Guarded by flights.mu.
	waiting int
	landed  bool

	mu        sync.Mutex // guards what follows
	listeners map[int]Progress
	next      int
	message   string
	percent   int

	result Artifact
	err    error
}

// do runs work under the key, or joins running work of that key. Every caller
// receives the further progress, beginning with the last report.
func (fs *flights) do(ctx context.Context, key string, progress Progress, work func(context.Context, Progress) (Artifact, error)) (Artifact, error) {
	if err := ctx.Err(); err != nil {
		return Artifact{}, err
	}
	fs.mu.Lock()
	f := fs.all[key]
	first := f == nil
	var workCtx context.Context
	if first {
		f = &flight{done: make(chan struct{}), listeners: map[int]Progress{}}
		workCtx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		if fs.all == nil {
			fs.all = map[string]*flight{}
		}
		fs.all[key] = f
	}
	f.waiting++
	fs.mu.Unlock()
	leave := f.listen(progress)
	defer leave()
	if first { // it listens already, so it misses no report
		go fs.run(workCtx, key, f, work)
	}

	select {
	case <-f.done:
		return f.result, f.err
	case <-ctx.Done():
	}
	fs.mu.Lock()
	f.waiting--
	last := f.waiting == 0 && !f.landed
	if last {
		// No caller may join work that is being cancelled.
		delete(fs.all, key)
		f.cancel()
	}
	fs.mu.Unlock()
	if last {
		// Ensure returns only after the work's temporary files and processes
		// are removed.
		<-f.done
	}
	return Artifact{}, ctx.Err()
}

// run does the work of a flight and wakes its callers.
func (fs *flights) run(ctx context.Context, key string, f *flight, work func(context.Context, Progress) (Artifact, error)) {
	f.result, f.err = fault.Guarded(fs.log, "an image", func() (Artifact, error) { return work(ctx, f.report) })
	f.cancel()
	fs.mu.Lock()
	f.landed = true
	if fs.all[key] == f {
		delete(fs.all, key)
	}
	fs.mu.Unlock()
	close(f.done)
}

func (f *flight) report(message string, percent int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.message, f.percent = message, percent
	for _, l := range f.listeners {
		l(message, percent)
	}
}

func (f *flight) listen(p Progress) (leave func()) {
	if p == nil {
		return func() {}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.next
	f.next++
	f.listeners[id] = p
	if f.message != "" {
		p(f.message, f.percent)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.listeners, id)
	}
}
