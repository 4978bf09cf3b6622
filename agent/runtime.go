package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"

	"hostler/internal/alarm"
)

// runtimeInterval is the longest delay between two checks of the runtime
// directory. The kernel does not report e.g. that a filesystem was mounted over
// the directory. A check costs two system calls.
const runtimeInterval = time.Minute

const (
	// renewRetry is the delay before a failed restoration is tried again.
	renewRetry = 2 * time.Second
	// renewDelay is the delay after an event, so that a program that removes the
	// directory with its files does not find new files in it.
	renewDelay = 200 * time.Millisecond
)

// keepRuntime is the worker that restores the socket and the container types' files
// in the runtime directory after their removal. The files of locks need no worker,
// because taking a lock creates its file.
func (h *host) keepRuntime(ctx context.Context) error {
	late, err := alarm.New()
	if err != nil {
		return err
	}
	defer late.Close()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", h.paths.RunDir, err)
	}
	defer watcher.Close()
	renewers := h.renewers()
	for {
		next := runtimeInterval
		// Check again after the watch begins, because a file may be removed before.
		if !h.renewRuntime(renewers) || watcher.Add(h.paths.RunDir) != nil || !h.renewRuntime(renewers) {
			next = renewRetry
		}
		late.Set(next)
		for due := false; !due; {
			select {
			case <-ctx.Done():
				return nil
			case <-watcher.Errors: // e.g. the kernel dropped events
				due = true
			case <-watcher.Events:
				// After a failed attempt, the event may be the attempt's own.
				if next > renewRetry {
					next = renewDelay
					late.Set(next)
				}
			case <-late.C:
				due = true
			}
		}
	}
}

// renewers returns the functions that restore the container types' files in the
// runtime directory.
func (h *host) renewers() []func() error {
	var all []func() error
	for _, c := range h.drivers {
		if c.renewer != nil {
			all = append(all, c.renewer(h.paths))
		}
	}
	return all
}

// renewRuntime checks the runtime directory once and restores missing files. It
// returns false if that failed.
func (h *host) renewRuntime(renewers []func() error) (complete bool) {
	renewed, err := h.listener.Renew()
	if err != nil {
		h.logger.Warn("The socket is missing and cannot be made again.", "socket", h.paths.Socket(), "error", err)
		return false
	}
	if renewed {
		h.logger.Warn("The socket was missing and is made again.", "socket", h.paths.Socket())
	}
	complete = true
	for _, renew := range renewers {
		if err := renew(); err != nil {
			complete = false
			h.logger.Warn("The record of the accelerator is missing and cannot be written again.", "error", err)
		}
	}
	return complete
}
