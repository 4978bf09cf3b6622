package agent

import (
	"context"
	"fmt"
	"os"

	"hostler/agent/storageprovisioner"
	"hostler/storage/blockdevice"
	"hostler/storage/mounts"
)

// newStorage creates the worker of the host's storage.
func (h *host) newStorage() *storageprovisioner.Worker {
	return storageprovisioner.New(h.common("storage"), storageprovisioner.Options{
		Sources: h.sources, Defaults: storageprovisioner.Config{Namespace: h.config().Namespace},
		Await: h.recovery.Await, Devices: blockdevice.Changes, WaitHolders: mounts.WaitHolders, Stage: h.stage,
	})
}

// prepareStorage restores lost records of storage and updates its statuses. It
// runs before any machine that uses storage starts.
func (h *host) prepareStorage(ctx context.Context) {
	if err := h.recovery.ScanStorage(ctx); err != nil && ctx.Err() == nil {
		h.logger.Warn("The storage of a lost store cannot be read.", "error", err)
	}
	if err := h.storage.Prepare(ctx); err != nil && ctx.Err() == nil {
		h.logger.Warn("The host's storage cannot be looked at.", "error", err)
	}
}

// stage makes the folder of mounts a shared mount, so that a mount or unmount
// in the folder takes effect in every mount namespace of the host. If used is
// false, stage removes the shared mount.
func (h *host) stage(used bool) error {
	dir := h.paths.Mounts("")
	if !used {
		return mounts.Unshare(dir, h.paths.StateDir)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("cannot make %s: %w", dir, err)
	}
	return mounts.Share(dir)
}
