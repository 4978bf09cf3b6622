package agent

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/storageprovisioner"
	"hostler/packaging"
	"hostler/storage"
	"hostler/storage/blockdevice"
	"hostler/storage/mounts"
)

// newStorage creates the worker of the host's storage.
func (h *host) newStorage() *storageprovisioner.Worker {
	return storageprovisioner.New(h.common("storage"), storageprovisioner.Options{
		Sources: h.sources, Defaults: storageprovisioner.Config{Namespace: h.config().Namespace},
		Unfound: h.unfound, Devices: blockDeviceChanges, WaitHolders: mounts.WaitHolders, Stage: h.stage,
	})
}

// installFor installs a package with the tools of a filesystem type.
func (h *host) installFor(ctx context.Context, pkg string, progress func(string)) error {
	release, err := packaging.ReadRelease(h.paths.OSRelease())
	if err != nil {
		return err
	}
	set, err := packaging.SetFor(packaging.ForFilesystems, release)
	if err != nil {
		return err
	}
	unlock, err := h.lock(ctx, "install "+pkg, func(holder string) { progress("waiting for " + holder) })
	if err != nil {
		return fmt.Errorf("cannot install %s: %w", pkg, err)
	}
	defer unlock()
	return h.packages(h.config()).Install(ctx, []string{pkg}, set.Options, progress)
}

// prepareStorage restores lost records and updates the statuses of the storage,
// before any machine starts that uses it.
func (h *host) prepareStorage(ctx context.Context) {
	if err := h.learnStorage(ctx); err != nil && ctx.Err() == nil {
		h.logger.Warn("The storage of a lost store cannot be read.", "error", err)
	}
	if err := h.storage.Prepare(ctx); err != nil && ctx.Err() == nil {
		h.logger.Warn("The host's storage cannot be looked at.", "error", err)
	}
}

// blockDeviceChanges signals the appearance, change and removal of block
// devices.
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

// promised returns the bytes that sparse volumes may still use on the disk.
func (h *host) promised() (sum int64) {
	add := func(source any) {
		if r, ok := source.(storage.SpaceReporter); ok {
			if space, err := r.Space(context.Background()); err == nil {
				sum += space.Promised
			}
		}
	}
	for _, source := range h.sources.Volumes {
		add(source)
	}
	for _, source := range h.sources.Filesystems {
		add(source)
	}
	return sum
}

// BlockDevices implements api.Host.
func (g hostReporter) BlockDevices(ctx context.Context) ([]client.BlockDevice, error) {
	devices, err := blockdevice.Host{}.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list the block devices: %w", err)
	}
	var rows []client.BlockDevice
	for _, d := range devices {
		row := client.BlockDevice{
			Name: d.Name, Path: d.Path, Preferred: d.Preferred(), Type: d.Type, Size: d.Size, ReadOnly: d.ReadOnly, InUse: d.InUse,
			WWN: d.WWN, Serial: d.Serial, Links: append([]string{}, d.Links...), Mounts: append([]string{}, d.MountPoints...), Backing: d.Backing,
			Content: d.Unreadable,
		}
		if len(d.Signatures) > 0 {
			row.Content = blockdevice.Describe(d.Signatures)
			row.UUID, row.Label = d.Signatures[0].UUID, d.Signatures[0].Label
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// stage makes the folder of mounts a shared mount, so that every mount
// namespace of the host gets and loses the mounts in it. If used is false, it
// removes the shared mount.
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

// unknownStorage lists the volumes and filesystems with our stamp and no
// record.
func (g hostReporter) unknownStorage(ctx context.Context) ([]client.UnknownStorage, error) {
	rows := []client.UnknownStorage{}
	objects, _, err := g.store.List(ctx, spec.KindVolume, spec.KindFilesystem)
	if err != nil {
		return rows, fmt.Errorf("cannot read the volumes and filesystems: %w", err)
	}
	there, err := g.sources.All(ctx)
	if err != nil {
		return rows, err
	}
	volumes, filesystems := there.Unknown(objects)
	for source, all := range volumes {
		for _, v := range all {
			row := client.UnknownStorage{Kind: spec.KindVolume, Name: v.ID, Provider: source, Size: v.Size, Path: v.Path, UID: v.Stamp.UID}
			if len(v.Attachments) > 0 {
				row.Device = v.Attachments[0].Device
			}
			rows = append(rows, row)
		}
	}
	for source, all := range filesystems {
		for _, f := range all {
			row := client.UnknownStorage{Kind: spec.KindFilesystem, Name: f.ID, Provider: source, Size: f.Size, UID: f.Stamp.UID}
			if len(f.Attachments) > 0 {
				row.Device, row.Path = f.Attachments[0].Device, f.Attachments[0].Path
			}
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b client.UnknownStorage) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name), strings.Compare(a.Provider, b.Provider))
	})
	return rows, nil
}
