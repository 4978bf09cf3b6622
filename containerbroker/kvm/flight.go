package kvm

import (
	"context"
	"errors"

	"hostler/internal/fault"
)

// flight is work that others wait for.
type flight struct {
	done chan struct{}
	id   string
	err  error
}

// once does the work of a key, or waits for whoever does it already and
// returns what that came to. Work that was given up is taken up by one of
// those that wait.
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
