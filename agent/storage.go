package agent

import (
	"context"
	"fmt"
	"os"

	"hostler/agent/storageprovisioner"
	"hostler/storage/blockdevice"
	"hostler/storage/mounts"
)

// newStorage makes the one worker of the host's storage.
func (h *host) newStorage() *storageprovisioner.Worker {
	const name = "storage"
	return storageprovisioner.New(storageprovisioner.Options{
		Store: h.store, Sources: h.sources,
		Defaults: storageprovisioner.Config{Namespace: h.config().Namespace},
		Devices:  blockDeviceChanges, WaitHolders: mounts.WaitHolders, Notice: h.notice, Stage: h.stage,
		Metrics: workerMetrics{h.metrics, h.sup, name}, Now: h.now, Logger: h.logger.With("worker", name),
	})
}

// prepareStorage finds out what of the machines' storage is there, before
// anything starts a machine that believes in what was there before.
func (h *host) prepareStorage(ctx context.Context) {
	if err := h.storage.Prepare(ctx); err != nil && ctx.Err() == nil {
		h.logger.Warn("The host's storage cannot be looked at.", "error", err)
	}
}

// blockDeviceChanges tells that block devices came, changed or went.
func blockDeviceChanges(ctx context.Context) (<-chan struct{}, error) {
	events, err := blockdevice.Events(ctx)
	if err != nil {
		return nil, err
	}
	changes := make(chan struct{})
	go func() {
		defer close(changes)
		for range events {
			select {
			case changes <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}()
	return changes, nil
}

// stage makes the folder of mounts one whose mounts every mount namespace of
// the host gets and loses with the host, or gives it up when nothing is
// declared.
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
