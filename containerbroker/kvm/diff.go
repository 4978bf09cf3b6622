package kvm

import (
	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
)

// Diff implements containerbroker.Differ.
func (d *Driver) Diff(m containerbroker.Machine, i containerbroker.Instance) []containerbroker.Change {
	have, ok := i.Raw.(raw)
	if !ok {
		return nil
	}
	want, err := settingsOf(m)
	if err != nil {
		return nil // Create and Update return this error; a plan was validated before
	}
	if have.key == nil && have.settings.UserData != "" {
		want.UserData = have.settings.UserData // the digest cannot be computed without the key
	} else {
		want.UserData = digest(have.key, containerbroker.ComparableUserData(m, want.UserData, have.seedText))
	}
	if len(have.settings.NICs) == 0 && len(m.NICs) == 0 {
		want.NICs = nil // an adopted machine keeps its interfaces
	}
	if m.RootDisk == 0 && (m.KeepGuest || have.settings.RootDisk == 0) {
		want.RootDisk = have.settings.RootDisk
	}
	grown := map[string]bool{} // disks that differ only in their size
	for _, disk := range m.Disks {
		grown[disk.Name] = want.Disks[disk.Name] == have.settings.Disks[disk.Name]
	}
	want.Disks, have.settings.Disks = sized(m.Disks, want.Disks, have)
	return containerbroker.Compare(want, have.settings, func(field string) (containerbroker.Impact, string) {
		if name, is := containerbroker.DiskOf(field); is && grown[name] && readOnly(m, name) {
			return containerbroker.ImpactRestart, "a running guest does not see a new size of a read-only disk"
		}
		if !have.place(field, wantedDevice(want, field)) {
			return containerbroker.ImpactRestart, "the running guest has no free slot for another device"
		}
		return impactOf(field, want, have)
	})
}

// impactOf returns the impact of a change on a running guest, and the reason
// for it.
func impactOf(field string, want containerbroker.Settings, have raw) (containerbroker.Impact, string) {
	switch field {
	case containerbroker.FieldImage:
		return containerbroker.ImpactRecreate, "an instance is made from its image"
	case containerbroker.FieldUserData:
		return want.UserDataImpact()
	case containerbroker.FieldPool:
		return containerbroker.ImpactRecreate, "a root disk cannot move between storage pools"
	case containerbroker.FieldRootDisk:
		if have.settings.RootDisk == 0 {
			return containerbroker.ImpactRecreate, "hostler did not make its root disk: grow it with libvirt's tools, and remove root-disk from the declaration"
		}
		if want.RootDisk < have.settings.RootDisk {
			return containerbroker.ImpactRecreate, "a root disk cannot shrink"
		}
	case containerbroker.FieldCPUs:
		if want.CPUs < have.settings.CPUs {
			return containerbroker.ImpactRestart, "a running guest does not release a processor"
		}
		if want.CPUs > have.maxCPUs {
			return containerbroker.ImpactRestart, "a running guest has no slots for so many processors"
		}
	case containerbroker.FieldMemory:
		if want.Memory > have.settings.Memory {
			return containerbroker.ImpactRestart, "a guest gets more memory when it starts"
		}
	case containerbroker.FieldNetworkConfig:
		if !cloudinit.NetworkOnlyShrinks(have.settings.NetworkConfig, want.NetworkConfig) {
			return containerbroker.ImpactRestart, "the guest configures its interfaces when it starts"
		}
	}
	return containerbroker.ImpactLive, ""
}
