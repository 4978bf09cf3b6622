// Package idle gives memory back to the kernel that the process needs only while
// it works.
package idle

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"hostler/internal/alarm"
)

const (
	// quietTime is how long the process must have been idle.
	quietTime = 10 * time.Second
	// growth is how many bytes the resident set must have grown since the last
	// release. It exceeds what a regular pass over all objects adds.
	growth = 8 << 20
)

// Releaser releases memory when the process has become idle.
type Releaser struct {
	busy  chan struct{}
	quiet time.Duration
	log   *slog.Logger
}

// New returns a releaser. Run starts it.
func New(log *slog.Logger) *Releaser {
	return &Releaser{busy: make(chan struct{}, 1), quiet: quietTime, log: log}
}

// Busy notes that the process works now. It never blocks and is safe for
// concurrent use.
func (r *Releaser) Busy() {
	select {
	case r.busy <- struct{}{}:
	default:
	}
}

// Run releases memory each time the process has become idle after a call of
// Busy, until ctx ends. It does nothing if the process has hardly grown since
// the last release. An idle process is not woken.
func (r *Releaser) Run(ctx context.Context) error {
	late, err := alarm.New()
	if err != nil {
		return err
	}
	defer late.Close()
	var least int64 // the resident set after the last release
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.busy:
			late.Set(r.quiet)
			continue
		case <-late.C:
		}
		before, err := resident()
		if err == nil && before >= least+growth {
			if err = release(); err == nil {
				least, err = resident()
				r.log.Debug("Memory was given back.", "before", before, "after", least)
			}
		}
		if err != nil {
			r.log.Debug("Memory cannot be given back.", "error", err)
		}
	}
}

// release gives back the free memory of Go's heap and the pages of the program
// file.
func release() error {
	debug.FreeOSMemory()
	return unmapProgram()
}
