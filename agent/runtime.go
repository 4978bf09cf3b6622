package agent

import (
	"context"
	"time"
)

// runtimeInterval is the delay between two checks of the runtime directory. A
// check costs two system calls.
const runtimeInterval = 2 * time.Second

// keepRuntime is the worker that restores removed files of the runtime
// directory: the socket, and those of the container types. Locks are created again when they are next taken.
func (h *host) keepRuntime(every time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(every)
		defer tick.Stop()
		renewers := h.renewers()
		for {
			h.renewRuntime(renewers)
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}
}

// renewers returns the functions of the container types that restore their
// files.
func (h *host) renewers() []func() error {
	var all []func() error
	for _, c := range h.drivers {
		if c.renewer != nil {
			all = append(all, c.renewer(h.paths))
		}
	}
	return all
}

// renewRuntime checks once.
func (h *host) renewRuntime(renewers []func() error) {
	renewed, err := h.listener.Renew()
	if err != nil {
		h.logger.Warn("The socket is missing and cannot be made again.", "socket", h.paths.Socket(), "error", err)
		return
	}
	if renewed {
		h.logger.Warn("The socket was missing and is made again.", "socket", h.paths.Socket())
	}
	for _, renew := range renewers {
		if err := renew(); err != nil {
			h.logger.Warn("The record of the accelerator is missing and cannot be written again.", "error", err)
		}
	}
}
