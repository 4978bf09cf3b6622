package lxd

import (
	"context"
	"sync"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// flight is a running fetch of an image that several callers share. It is
// cancelled when the last caller leaves.
type flight struct {
	done   chan struct{}
	cancel context.CancelFunc
	id     string
	err    error

	mu        sync.Mutex
	listeners map[*listener]bool
	last      *containerbroker.Step
}

type listener struct{ progress containerbroker.Progress }

// report passes a step to all waiting callers.
func (f *flight) report(phase, message string, percent int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	step := containerbroker.Step{Phase: phase, Message: message, Percent: percent}
	if f.last != nil && *f.last == step {
		return
	}
	f.last = &step
	for l := range f.listeners {
		l.progress.Report(phase, message, percent)
	}
}

// share joins the running fetch of key, or begins a new fetch.
func (d *Driver) share(ctx context.Context, key string, progress containerbroker.Progress, fetch func(context.Context, *flight) (string, error)) (string, error) {
	d.mu.Lock()
	f := d.flights[key]
	if f == nil {
		fetchCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{done: make(chan struct{}), cancel: cancel, listeners: map[*listener]bool{}}
		d.flights[key] = f
		go func() {
			f.id, f.err = fault.Guarded(d.log, "the fetch of an image", func() (string, error) { return fetch(fetchCtx, f) })
			d.land(key, f)
			cancel()
			close(f.done)
		}()
	}
	me := &listener{progress}
	f.mu.Lock()
	f.listeners[me] = true
	if f.last != nil {
		progress.Report(f.last.Phase, f.last.Message, f.last.Percent)
	}
	f.mu.Unlock()
	d.mu.Unlock()

	select {
	case <-f.done:
		return f.id, f.err
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f.mu.Lock()
	delete(f.listeners, me)
	nobody := len(f.listeners) == 0
	f.mu.Unlock()
	if nobody {
		f.cancel()
		if d.flights[key] == f {
			delete(d.flights, key) // no caller may join a cancelled fetch
		}
	}
	return "", ctx.Err()
}

func (d *Driver) land(key string, f *flight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flights[key] == f {
		delete(d.flights, key)
	}
}
