package lxd

import (
	"context"
	"slices"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
)

// LXD changes an instance's id for cloud-init whenever a cloud-init.* key or
// the names of its interfaces change (needsNewInstanceID in LXD 5.0.2). At the
// next start, cloud-init then repeats the guest's first boot, in which it makes
// new SSH host keys and runs every command of the user-data. LXD changes the id
// after it has applied the keys of a request, so no single request can keep the
// id. Therefore a first request saves the id under keyPinned, and a second
// request restores it. If the agent crashes between the two, Diff finds the
// saved id, and Update or SetPower restores it.
const (
	keyInstanceID = "volatile.cloud-init.instance-id"
	keyPinned     = "user.hostler.instance-id"
	// noInstanceID is saved for an instance without an id. For such an instance
	// cloud-init uses the instance's name.
	noInstanceID = "none"
)

// pinInstanceID saves the id in config, for a request that makes these changes,
// if they would change the id. If they are meant to make cloud-init repeat the
// first boot, it removes a saved id instead. It reports whether config has a
// saved id.
func pinInstanceID(config map[string]string, m containerbroker.Machine, changes []containerbroker.Change) bool {
	changed := func(is func(field string) bool) bool {
		return slices.ContainsFunc(changes, func(c containerbroker.Change) bool { return is(c.Field) })
	}
	if m.RerunFirstBoot && changed(func(field string) bool { return field == containerbroker.FieldUserData }) {
		delete(config, keyPinned)
		return false
	}
	renews := changed(func(field string) bool {
		_, nic := containerbroker.NICOf(field)
		return nic || field == containerbroker.FieldNetworkConfig
	})
	if renews && config[keyPinned] == "" {
		config[keyPinned] = config[keyInstanceID]
		if config[keyPinned] == "" {
			config[keyPinned] = noInstanceID
		}
	}
	return config[keyPinned] != ""
}

// unpinInstanceID restores the saved id in a configuration.
func unpinInstanceID(config map[string]string) {
	switch id := config[keyPinned]; id {
	case "":
		return
	case noInstanceID:
		delete(config, keyInstanceID)
	default:
		config[keyInstanceID] = id
	}
	delete(config, keyPinned)
}

func (d *Driver) restoreInstanceID(ctx context.Context, name string) error {
	return d.edit(ctx, name, func(_ *client, _ api.Instance, put *api.InstancePut) error {
		unpinInstanceID(put.Config)
		return nil
	})
}
