package lxd

import (
	"context"
	"slices"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
)

// LXD renews an instance's id for cloud-init whenever a cloud-init.* key of it
// or the names of its interfaces change (needsNewInstanceID in LXD
// 5.0.2). At its next start cloud-init then
// runs the guest's first boot again: with new SSH host keys, and with every
// command of the user-data. LXD does that after it has taken over the request's
// own keys, so that no request can keep the id: the request notes it under
// keyPinned, and a second one puts it back. A crash between the two leaves the
// note, which Diff, Update and SetPower see.
const (
	keyInstanceID = "volatile.cloud-init.instance-id"
	keyPinned     = "user.hostler.instance-id"
	// noInstanceID stands for an instance that had none: cloud-init then takes
	// the instance's name.
	noInstanceID = "none"
)

// pinInstanceID notes the id in the configuration of a request that makes
// these changes, unless they are to make cloud-init run the first boot again,
// and says whether a note is there.
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

// unpinInstanceID puts the noted id back in a configuration.
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
