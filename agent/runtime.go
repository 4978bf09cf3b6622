package agent

import (
	"context"
	"time"

	kvminit "hostler/initialisers/kvm"
)

// runtimeInterval is for how long what was removed of the runtime directory
// may be missing: a look costs two calls of the kernel.
const runtimeInterval = 2 * time.Second

// keepRuntime is the worker that makes the runtime directory again, which is
// nobody's data and is easily removed: the socket, and the file in which a
// provisioner's unit reads how KVM guests run here. Locks are made again by
// whoever takes them.
func (h *host) keepRuntime(every time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(every)
		defer tick.Stop()
		var proven kvminit.Outcome
		for {
			h.renewRuntime(&proven)
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}
}

// renewRuntime looks once; proven is what it last found of how guests run.
func (h *host) renewRuntime(proven *kvminit.Outcome) {
	renewed, err := h.listener.Renew()
	if err != nil {
		h.logger.Warn("The socket is gone and cannot be made again.", "socket", h.paths.Socket(), "error", err)
		return
	}
	if renewed {
		h.logger.Warn("The socket was gone and is made again.", "socket", h.paths.Socket())
	}
	if found, err := kvminit.ReadOutcome(h.paths); err == nil {
		*proven = found
	} else if proven.Accelerator != "" {
		if err := proven.Write(h.paths); err != nil {
			h.logger.Warn("How guests run here is gone and cannot be written again.", "error", err)
		}
	}
}
