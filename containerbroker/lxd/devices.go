package lxd

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
)

// devices are LXD's devices by their names.
type devices = map[string]map[string]string

// keyOwner marks a device as made by hostler; LXD keeps user.* keys of devices
// and does nothing with them. A device without it is a person's and stays as
// it is, unless it bears the name of an interface or disk that is declared.
const keyOwner = keyNamespace

// maxDeviceName is the longest name, in bytes, that LXD takes for every type
// of device: that of a block device has to do as a host name.
const maxDeviceName = 63

// mask is what stands in for an interface of a profile that an instance is not
// to have: LXD takes a device of this type as none at all.
const mask = "none"

func isAttachment(field string) bool {
	_, nic := containerbroker.NICOf(field)
	_, disk := containerbroker.DiskOf(field)
	return nic || disk
}

// deviceName returns the name of a disk's device. Names that LXD would refuse
// are cut and bear a hash of the whole.
func deviceName(name string) string {
	if len(name) <= maxDeviceName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxDeviceName-13] + "-" + hex.EncodeToString(sum[:6])
}

// attach returns own with all interfaces and disks of m, without those of ours
// that m does not have, and with the interfaces that the profiles give masked.
// What a person added stays.
func (d *Driver) attach(own devices, m containerbroker.Machine, fromProfiles devices) (devices, error) {
	if err := checkNames(m); err != nil {
		return nil, err
	}
	result := devices{}
	maps.Copy(result, own)
	maps.DeleteFunc(result, func(_ string, device map[string]string) bool { return device[keyOwner] != "" })
	for _, n := range m.NICs {
		result[n.Name] = merge(own[n.Name], keepPlugged(own[n.Name], nicDevice(n)), nicKeys, m.Stamp.Namespace)
	}
	for _, disk := range m.Disks {
		name := deviceName(disk.Name)
		result[name] = merge(own[name], diskDevice(disk), diskKeys, m.Stamp.Namespace)
	}
	if len(m.NICs) > 0 {
		for name, device := range fromProfiles {
			if device["type"] == "nic" && result[name] == nil {
				result[name] = map[string]string{"type": mask, keyOwner: m.Stamp.Namespace}
			}
		}
	}
	return result, nil
}

// reattach makes the changes of interfaces and disks; others of them stay.
func (d *Driver) reattach(c *client, m containerbroker.Machine, found api.Instance, put *api.InstancePut, changes []containerbroker.Change) error {
	if !slices.ContainsFunc(changes, func(c containerbroker.Change) bool { return isAttachment(c.Field) }) {
		return nil
	}
	var given devices
	var err error
	if len(m.NICs) > 0 {
		// What its own devices hide is not in the instance's expanded ones.
		if given, err = d.profileDevices(c, found.Profiles); err != nil {
			return err
		}
	}
	whole, err := d.attach(ownDevices(found.Config, found.Devices), m, given)
	if err != nil {
		return err
	}
	if put.Devices == nil {
		put.Devices = devices{}
	}
	var changed []string
	for _, change := range changes {
		name, ok := containerbroker.NICOf(change.Field)
		if !ok {
			if name, ok = containerbroker.DiskOf(change.Field); !ok {
				continue
			}
			name = deviceName(name)
		}
		if whole[name] == nil {
			delete(put.Devices, name)
		} else {
			put.Devices[name] = whole[name]
		}
		changed = append(changed, name)
	}
	claimDevices(put.Config, changed)
	return nil
}

// merge returns a device with the keys that we write as wanted and all others
// as they are. Of another type nothing is kept.
func merge(have, want map[string]string, keys []string, owner string) map[string]string {
	result := map[string]string{}
	if have["type"] == want["type"] {
		maps.Copy(result, have)
	}
	for _, key := range keys {
		delete(result, key)
	}
	maps.Copy(result, want)
	result[keyOwner] = owner
	return result
}

// profileDevices returns the devices that profiles give; of two that give the
// same one the later counts.
func (d *Driver) profileDevices(c *client, names []string) (devices, error) {
	given, _, err := d.readProfiles(c, names)
	return given, err
}

// readProfiles returns the devices and the configuration that profiles give.
func (d *Driver) readProfiles(c *client, names []string) (devices, map[string]string, error) {
	given, config := devices{}, map[string]string{}
	for _, name := range names {
		var profile api.Profile
		if _, err := c.get("/1.0/profiles/"+url.PathEscape(name), &profile); err != nil {
			return nil, nil, fmt.Errorf("cannot read profile %s: %w", name, err)
		}
		maps.Copy(given, profile.Devices)
		maps.Copy(config, profile.Config)
	}
	return given, config, nil
}
