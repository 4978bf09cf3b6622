package kvm

import (
	"context"
	"errors"

	"hostler/internal/fault"
)

// flight is work in progress whose result several callers share.
type flight struct {
	done chan struct{}
	id   string
	err  error
}

// once does the work of a key, or waits for a caller that is already doing it
// and returns that result. If the working caller is cancelled, a waiting caller
// takes the work over.
func (d *Driver) once(ctx context.Context, key string, work func() (string, error)) (string, error) {
	for {
		d.mu.Lock()
		f, joined := d.flights[key]
		if !joined {
			f = &flight{done: make(chan struct{})}
			d.flights[key] = f
		}
		d.mu.Unlock()
		if !joined {
			f.id, f.err = fault.Guarded(d.log, key, work)
			d.mu.Lock()
			delete(d.flights, key)
			d.mu.Unlock()
			close(f.done)
			return f.id, f.err
		}
		select {
		case <-f.done:
			if !errors.Is(f.err, context.Canceled) {
				return f.id, f.err
			}
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}
