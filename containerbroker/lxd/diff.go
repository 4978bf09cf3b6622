package lxd

import (
	"slices"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
)

// Diff implements containerbroker.Differ. It compares only the keys that
// hostler writes. A smaller root disk is a live change: LXD itself refuses it
// if the pool cannot shrink volumes, and an error costs less than recreating
// the instance.
func (d *Driver) Diff(m containerbroker.Machine, i containerbroker.Instance) []containerbroker.Change {
	have, ok := i.Raw.(raw)
	if !ok {
		return nil
	}
	want, err := settingsOf(m)
	if err != nil {
		return nil // Create and Update return this error; a plan was validated before
	}
	want.UserData = containerbroker.ComparableUserData(m, want.UserData, have.settings.UserData)
	want.NICs, have.settings.NICs = nicTexts(m, have)
	want.Disks, have.settings.Disks = diskTexts(m, have.own)
	changes := containerbroker.Compare(want, have.settings, func(field string) (containerbroker.Impact, string) {
		name, isNIC := containerbroker.NICOf(field)
		switch {
		case isNIC && readdressed(m, name, have.own[name]):
			return containerbroker.ImpactRestart, "the guest learns its address when it starts"
		case field == containerbroker.FieldNetworkConfig && !cloudinit.NetworkOnlyShrinks(have.settings.NetworkConfig, want.NetworkConfig):
			return containerbroker.ImpactRestart, "the guest configures its interfaces when it starts"
		}
		return impactOf(field, want)
	})
	if have.pinned && !slices.ContainsFunc(changes, func(c containerbroker.Change) bool { return c.Field == containerbroker.FieldRecord }) {
		changes = append(changes, containerbroker.Change{Field: containerbroker.FieldRecord, Impact: containerbroker.ImpactLive})
	}
	return changes
}

// impactOf returns the impact of a change on a running instance, as far as the
// field alone determines it. LXD plugs interfaces and disks while the guest
// runs. If the bridge, MAC or MTU of an interface changes, LXD replaces the
// interface by another of the same name.
func impactOf(field string, want containerbroker.Settings) (containerbroker.Impact, string) {
	switch field {
	case containerbroker.FieldImage:
		return containerbroker.ImpactRecreate, "an instance is made from its image"
	case containerbroker.FieldPool:
		return containerbroker.ImpactRecreate, "a root disk cannot move between storage pools"
	case containerbroker.FieldUserData:
		return want.UserDataImpact()
	case containerbroker.FieldPrivileged:
		return containerbroker.ImpactRestart, "the user ids of its files change"
	case containerbroker.FieldNesting:
		return containerbroker.ImpactRestart, "it is read when the instance starts"
	}
	return containerbroker.ImpactLive, ""
}
