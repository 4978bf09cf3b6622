package hostreport

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/storage/blockdevice"
)

// BlockDevices implements api.Host.
func (r Reporter) BlockDevices(ctx context.Context) ([]client.BlockDevice, error) {
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

// unknownStorage lists the volumes and filesystems that have our stamp but no
// record.
func (r Reporter) unknownStorage(ctx context.Context) ([]client.UnknownStorage, error) {
	rows := []client.UnknownStorage{}
	objects, _, err := r.Store.List(ctx, spec.KindVolume, spec.KindFilesystem)
	if err != nil {
		return rows, fmt.Errorf("cannot read the volumes and filesystems: %w", err)
	}
	there, err := r.Sources.All(ctx)
	if err != nil {
		return rows, err
	}
	volumes, filesystems := there.Unknown(objects)
	for source, all := range volumes {
		for _, v := range all {
			row := client.UnknownStorage{Kind: spec.KindVolume, Name: v.ID, Provider: source, Size: v.Size, Path: v.Path, UID: v.Stamp.UID}
			if d, attached := v.Device(); attached {
				row.Device = d.Device
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
