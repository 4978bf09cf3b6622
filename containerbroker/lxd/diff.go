package lxd

import (
	"slices"

	"hostler/containerbroker"
)

// Diff implements containerbroker.Differ. It compares only the keys that
// hostler writes. A smaller root disk is a live change. LXD refuses the change
// if the pool cannot shrink volumes, and that error costs less than recreating
// the instance. LXD can plug interfaces and disks into a running guest. If the
// bridge, MAC or MTU of an interface changes, LXD replaces the interface by
// another of the same name.
func (d *Driver) Diff(m containerbroker.Machine, i containerbroker.Instance) []containerbroker.Change {
	have, ok := i.Raw.(raw)
	if !ok {
		return nil
	}
	want, err := settingsOf(m)
	if err != nil {
		return containerbroker.Refused(err)
	}
	want.UserData = containerbroker.ComparableUserData(m, want.UserData, i.Stored.UserData)
	want.NICs, i.Stored.NICs = nicTexts(m, have, i.Status == containerbroker.StatusStopped)
	want.Disks, i.Stored.Disks = diskTexts(m, have.own)
	changes := containerbroker.Compare(want, i, func(field string, _ containerbroker.Settings, _ containerbroker.Instance) (containerbroker.Impact, string) {
		if name, isNIC := containerbroker.NICOf(field); isNIC && readdressed(m, name, have.own[name]) {
			return containerbroker.ImpactRestart, "the guest learns its address when it starts"
		}
		return "", ""
	})
	if have.pinned && !slices.ContainsFunc(changes, func(c containerbroker.Change) bool { return c.Field == containerbroker.FieldRecord }) {
		changes = append(changes, containerbroker.Change{Field: containerbroker.FieldRecord, Impact: containerbroker.ImpactLive})
	}
	return changes
}
