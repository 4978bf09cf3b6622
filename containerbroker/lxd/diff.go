package lxd

import (
	"slices"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
)

// Diff implements containerbroker.Differ. Only the keys that hostler writes
// are compared. A root disk that is to shrink is tried live: LXD itself
// refuses where the pool cannot do it, and making an instance again for it
// would cost more than an error.
func (d *Driver) Diff(m containerbroker.Machine, i containerbroker.Instance) []containerbroker.Change {
	have, ok := i.Raw.(raw)
	if !ok {
		return nil
	}
	want, err := settingsOf(m)
	if err != nil {
		return nil // Create and Update say so; a plan was validated before
	}
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

// impactOf says what a change does to a running instance, as far as the field
// alone tells. LXD plugs interfaces and disks in and out while the guest runs;
// an interface whose bridge, MAC or MTU changes is replaced by another of the
// same name.
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
