package kvm

import (
	"slices"

	"hostler/containerbroker"
)

// Diff implements containerbroker.Differ.
func (d *Driver) Diff(m containerbroker.Machine, i containerbroker.Instance) []containerbroker.Change {
	known, ok := i.Raw.(raw)
	if !ok {
		return nil
	}
	want, err := settingsOf(m)
	if err != nil {
		return containerbroker.Refused(err)
	}
	if known.key == nil && i.Stored.UserData != "" {
		want.UserData = i.Stored.UserData // the digest cannot be computed without the key
	} else {
		want.UserData = digest(known.key, containerbroker.ComparableUserData(m, want.UserData, known.seedText))
	}
	if len(i.Stored.NICs)+len(i.Now().NICs)+len(m.NICs) == 0 {
		want.NICs = nil // an adopted machine keeps its interfaces
	}
	unknown := describeAddresses(&want, &i)
	if m.RootDisk == 0 && (m.KeepGuest || i.Stored.RootDisk == 0) {
		want.RootDisk = i.Stored.RootDisk
	}
	for _, disk := range m.Disks {
		if disk.ReadOnly && i.Stored.Sizes[disk.Name] == 0 {
			delete(want.Sizes, disk.Name) // the guest may already know this size, e.g. after an adoption, so do not restart it
		}
	}
	changes := containerbroker.Compare(want, i, func(field string, want containerbroker.Settings, i containerbroker.Instance) (containerbroker.Impact, string) {
		name, is := containerbroker.DiskOf(field)
		if is && readOnly(m, name) && want.Disks[name] == i.Stored.Disks[name] && want.Disks[name] == i.Now().Disks[name] {
			return containerbroker.ImpactRestart, "a running guest does not see a new size of a read-only disk"
		}
		return impactOf(field, want, i)
	})
	if unknown && !slices.ContainsFunc(changes, func(c containerbroker.Change) bool { return c.Field == containerbroker.FieldRecord }) {
		changes = append(changes, containerbroker.Change{Field: containerbroker.FieldRecord, Impact: containerbroker.ImpactLive})
	}
	return changes
}

// impactOf is the containerbroker.Rule for properties and the root disk. Diff
// and Update use it.
func impactOf(field string, want containerbroker.Settings, i containerbroker.Instance) (containerbroker.Impact, string) {
	for _, p := range properties {
		if p.field != field || p.waits == nil {
			continue
		}
		if why := p.waits(want.Properties, i); why != "" {
			return containerbroker.ImpactRestart, why
		}
	}
	switch have := i.Stored.RootDisk; {
	case field != containerbroker.FieldRootDisk:
	case have == 0:
		return containerbroker.ImpactRecreate, "hostler did not make its root disk: grow it with libvirt's tools, and remove root-disk from the declaration"
	case want.RootDisk < have:
		return containerbroker.ImpactRecreate, "a root disk cannot shrink"
	}
	return "", ""
}
