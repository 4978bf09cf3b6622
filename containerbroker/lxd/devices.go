package lxd

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
)

// devices maps the names of LXD's devices to their keys and values.
type devices = map[string]map[string]string

// keyOwner is the key that marks a device as made by hostler. LXD stores user.*
// keys of devices and ignores them. A device without the mark belongs to the
// administrator and stays unchanged, unless it has the name of a declared
// interface or disk.
const keyOwner = keyNamespace

// maxDeviceName is the longest name, in bytes, that LXD accepts for every type
// of device. The limit comes from block devices, whose names must be valid host
// names.
const maxDeviceName = 63

// mask is a type of device that LXD ignores. An instance's own device of this
// type hides a profile's interface of the same name.
const mask = "none"

// deviceName returns the name of a disk's device. If the disk's name is too
// long for LXD, the result is its beginning and a hash of the whole name.
func deviceName(name string) string {
	if len(name) <= maxDeviceName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxDeviceName-13] + "-" + hex.EncodeToString(sum[:6])
}

// attach returns the devices own, changed so that they have all interfaces and
// disks of m and no other devices of hostler. If m has interfaces, masks hide
// the interfaces of the profiles. Devices that the administrator added stay.
// plugged is true if the instance is not stopped.
func (d *Driver) attach(own devices, m containerbroker.Machine, fromProfiles devices, plugged bool) (devices, error) {
	if err := checkNames(m); err != nil {
		return nil, err
	}
	result := devices{}
	maps.Copy(result, own)
	maps.DeleteFunc(result, func(_ string, device map[string]string) bool { return device[keyOwner] != "" })
	for _, n := range m.NICs {
		device := nicDevice(n)
		if plugged {
			device = keepPlugged(own[n.Name], device)
		}
		result[n.Name] = merge(own[n.Name], device, nicKeys, m.Stamp.Namespace)
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

// reattach makes the given changes of interfaces and disks in put. Other
// devices stay unchanged.
func (d *Driver) reattach(c *client, m containerbroker.Machine, found api.Instance, put *api.InstancePut, changes []containerbroker.Change) error {
	if !slices.ContainsFunc(changes, func(c containerbroker.Change) bool { return containerbroker.IsDevice(c.Field) }) {
		return nil
	}
	var profiled devices
	var err error
	if len(m.NICs) > 0 {
		// Read the profiles, because the instance's expanded devices lack the
		// profiles' devices that are hidden by its own devices.
		if profiled, err = d.profileDevices(c, found.Profiles); err != nil {
			return err
		}
	}
	whole, err := d.attach(ownDevices(found.Config, found.Devices), m, profiled, statusOf(found.StatusCode) != containerbroker.StatusStopped)
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

// merge returns the device want with hostler's mark, and with the keys of have
// that are not in keys. If the type changes, it keeps no key of have.
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

// profileDevices returns the devices that profiles give. If two profiles give
// the same device, the later profile wins.
func (d *Driver) profileDevices(c *client, names []string) (devices, error) {
	profiled, _, err := d.readProfiles(c, names)
	return profiled, err
}

// readProfiles returns the devices and the configuration that profiles give. A
// later profile wins over an earlier one.
func (d *Driver) readProfiles(c *client, names []string) (devices, map[string]string, error) {
	profiled, config := devices{}, map[string]string{}
	for _, name := range names {
		var profile api.Profile
		if _, err := c.get("/1.0/profiles/"+url.PathEscape(name), &profile); err != nil {
			return nil, nil, fmt.Errorf("cannot read profile %s: %w", name, err)
		}
		maps.Copy(profiled, profile.Devices)
		maps.Copy(config, profile.Config)
	}
	return profiled, config, nil
}

// keyInstanceDevices is the key that lists, one per line, devices that have
// hostler's mark but belong to the instance, because it had them when a machine
// adopted it. They keep the mark, because LXD unplugs and replugs a running
// guest's device when any of the device's keys changes.
const keyInstanceDevices = "user.hostler.left"

// markInstanceDevices writes in config that all devices with hostler's mark
// belong to the instance.
func markInstanceDevices(config map[string]string, all devices) {
	var left []string
	for name, device := range all {
		if device[keyOwner] != "" {
			left = append(left, name)
		}
	}
	setInstanceDevices(config, left)
}

// claimDevices writes in config that the named devices belong to hostler, even
// if keyInstanceDevices listed them.
func claimDevices(config map[string]string, names []string) {
	setInstanceDevices(config, slices.DeleteFunc(instanceDevices(config), func(name string) bool { return slices.Contains(names, name) }))
}

func setInstanceDevices(config map[string]string, left []string) {
	if len(left) == 0 {
		delete(config, keyInstanceDevices)
		return
	}
	slices.Sort(left)
	config[keyInstanceDevices] = strings.Join(left, "\n")
}

func instanceDevices(config map[string]string) []string {
	return slices.DeleteFunc(strings.Split(config[keyInstanceDevices], "\n"), func(name string) bool { return name == "" })
}

// ownDevices returns an instance's own devices. It removes hostler's mark from
// devices that keyInstanceDevices lists.
func ownDevices(config map[string]string, all devices) devices {
	left := instanceDevices(config)
	if len(left) == 0 {
		return all
	}
	own := maps.Clone(all)
	for _, name := range left {
		if own[name] != nil {
			own[name] = maps.Clone(own[name])
			delete(own[name], keyOwner)
		}
	}
	return own
}
