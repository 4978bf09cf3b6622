// Package supervise runs the agent's workers and restarts those that fail.
package supervise

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler/agent/client"
)

// Supervisor runs workers and restarts those that end with an error or a panic.
// The failure of a worker does not affect the others.
type Supervisor struct {
	logger *slog.Logger
	now    func() time.Time

	mu      sync.Mutex
	workers map[string]*supervised
	all     sync.WaitGroup
}

type supervised struct {
	cancel context.CancelFunc
	done   chan struct{}
	state  client.Worker
}

// New returns a supervisor without workers.
func New(logger *slog.Logger, now func() time.Time) *Supervisor {
	return &Supervisor{logger: logger, now: now, workers: map[string]*supervised{}}
}

// restartDelay is the delay before the restart after n earlier failures in a
// row. It doubles from 1 s up to 1 min.
func restartDelay(n int) time.Duration { return min(time.Second<<min(n, 10), time.Minute) }

// Start runs a worker until ctx ends or Stop is called. It does nothing if the
// worker runs already.
func (s *Supervisor) Start(ctx context.Context, name string, run func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[name]; w != nil && w.state.State != "stopped" {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &supervised{cancel: cancel, done: make(chan struct{}), state: client.Worker{Name: name, State: "running", Since: s.now()}}
	s.workers[name] = w
	s.all.Go(func() {
		defer close(w.done)
		s.keep(ctx, w, run)
	})
}

func (s *Supervisor) keep(ctx context.Context, w *supervised, run func(context.Context) error) {
	for failures := 0; ; {
		began := s.now()
		err := runRecovering(ctx, run)
		if ctx.Err() != nil || err == nil {
			s.set(w, "stopped", "")
			return
		}
		if s.now().Sub(began) > 5*time.Minute {
			failures = 0
		}
		delay := restartDelay(failures)
		failures++
		s.set(w, "failed", fmt.Sprintf("%v; started again in %s", err, delay))
		s.logger.Warn("A worker failed and will be started again.", "worker", w.state.Name, "error", err, "delay", delay)
		select {
		case <-ctx.Done():
			s.set(w, "stopped", "")
			return
		case <-time.After(delay):
		}
		s.set(w, "running", "")
	}
}

// runRecovering runs a worker and turns a panic into an error.
func runRecovering(ctx context.Context, run func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return run(ctx)
}

func (s *Supervisor) set(w *supervised, state, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.state.State, w.state.Message, w.state.Since = state, message, s.now()
}

// Passed counts a pass of a worker.
func (s *Supervisor) Passed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[name]; w != nil {
		w.state.Passes++
	}
}

// Stop ends a worker and waits until it has ended. It does nothing if the
// worker does not run.
func (s *Supervisor) Stop(name string) {
	s.mu.Lock()
	w := s.workers[name]
	delete(s.workers, name)
	s.mu.Unlock()
	if w != nil {
		w.cancel()
		<-w.done
	}
}

// Wait returns when every worker has ended.
func (s *Supervisor) Wait() { s.all.Wait() }

// List returns every worker's state, sorted by name.
func (s *Supervisor) List() []client.Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := make([]client.Worker, 0, len(s.workers))
	for _, w := range s.workers {
		rows = append(rows, w.state)
	}
	slices.SortFunc(rows, func(a, b client.Worker) int { return strings.Compare(a.Name, b.Name) })
	return rows
}
