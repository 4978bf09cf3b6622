package agent

import (
	"context"
	"time"

	kvminit "hostler/initialisers/kvm"
)

// runtimeInterval is the delay between two checks of the runtime directory. A
// check costs two system calls.
const runtimeInterval = 2 * time.Second

// keepRuntime is the worker that restores removed files of the runtime
// directory: the socket, and the file from which a provisioner's unit reads the
// accelerator of KVM guests. Locks are created again when they are next taken.
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

// renewRuntime checks once. proven is the last outcome that was read from the
// file.
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
