package lxd

import (
	"maps"
	"strconv"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
)

// rootName is the name of the root disk device that hostler adds.
const rootName = "root"

// settingsOf checks the stamp of a machine and returns the machine's settings.
func settingsOf(m containerbroker.Machine) (containerbroker.Settings, error) {
	if err := m.Stamp.Check(); err != nil {
		return containerbroker.Settings{}, err
	}
	return containerbroker.SettingsOf(m)
}

// configKey is a row of the table of configuration keys that hostler sets from
// the declaration.
type configKey struct {
	field, key string
	write      func(*containerbroker.Settings) string
	read       func(*containerbroker.Settings, string)
	// odd reports whether no machine can declare a value. valid describes the
	// values that a machine can declare.
	odd   func(string) bool
	valid string
	// always is true if every new instance gets the key, so that no profile can
	// set it.
	always bool
}

// configKeys is the table of those keys.
var configKeys = []configKey{
	numberKey(containerbroker.FieldCPUs, keyCPUs, "number of processors", func(s *containerbroker.Settings) *int { return &s.CPUs }, cpusOf),
	numberKey(containerbroker.FieldMemory, keyMemory, "size", func(s *containerbroker.Settings) *int64 { return &s.Memory }, bytesOf),
	switchKey(containerbroker.FieldAutostart, keyAutostart, func(s *containerbroker.Settings) *bool { return &s.Autostart }),
	switchKey(containerbroker.FieldPrivileged, keyPrivileged, func(s *containerbroker.Settings) *bool { return &s.Privileged }),
	switchKey(containerbroker.FieldNesting, keyNesting, func(s *containerbroker.Settings) *bool { return &s.Nesting }),
	textKey(containerbroker.FieldUserData, keyUserData, func(s *containerbroker.Settings) *string { return &s.UserData }),
	textKey(containerbroker.FieldNetworkConfig, keyNetworkConfig, func(s *containerbroker.Settings) *string { return &s.NetworkConfig }),
	textKey(containerbroker.FieldRecord, keyRecord, func(s *containerbroker.Settings) *string { return &s.Record }),
}

// numberKey returns the row of a number. It is written without a unit, which
// LXD reads as bytes or as a count. If the number is 0, the key is absent.
func numberKey[T int | int64](field, key, valid string, at func(*containerbroker.Settings) *T, parse func(string) T) configKey {
	return configKey{
		field: field, key: key, valid: valid,
		write: func(s *containerbroker.Settings) string { return number(int64(*at(s))) },
		read:  func(s *containerbroker.Settings, v string) { *at(s) = parse(v) },
		odd:   func(v string) bool { return parse(v) < 0 },
	}
}

func switchKey(field, key string, at func(*containerbroker.Settings) *bool) configKey {
	return configKey{
		field: field, key: key, odd: never, always: true,
		write: func(s *containerbroker.Settings) string { return strconv.FormatBool(*at(s)) },
		read:  func(s *containerbroker.Settings, v string) { *at(s) = isTrue(v) },
	}
}

func textKey(field, key string, at func(*containerbroker.Settings) *string) configKey {
	return configKey{
		field: field, key: key, odd: never,
		write: func(s *containerbroker.Settings) string { return *at(s) },
		read:  func(s *containerbroker.Settings, v string) { *at(s) = v },
	}
}

func never(string) bool { return false }

// settingsIn returns the instance's own settings, and the properties in effect,
// which profiles may set. It leaves out interfaces and disks, which Diff adds.
func settingsIn(f api.InstanceFull, root, expanded map[string]string) (own containerbroker.Settings, all containerbroker.Properties) {
	own.ImageID, own.Pool, own.RootDisk = f.Config[keyBaseImage], expanded["pool"], bytesOf(root["size"])
	whole := containerbroker.Settings{}
	whole.RootDisk = max(bytesOf(expanded["size"]), 0)
	for _, k := range configKeys {
		value := effective(f, k.key)
		k.read(&own, f.Config[k.key])
		if k.always {
			k.read(&own, value)
		}
		if !k.odd(value) {
			k.read(&whole, value)
		}
	}
	return own, whole.Properties
}

// writeStamp writes the stamp's keys, and removes the keys of empty fields.
func writeStamp(config map[string]string, s containerbroker.Stamp) {
	for key, value := range map[string]string{
		keyNamespace: s.Namespace, keyUID: s.UID, keyToken: s.Token, keyRecord: s.Record, keyStore: s.Store,
	} {
		setKey(config, key, value)
	}
}

// setField writes a field to a configuration. It returns false if no
// configuration key belongs to the field.
func setField(config map[string]string, field string, s containerbroker.Settings) bool {
	for _, k := range configKeys {
		if k.field == field {
			setKey(config, k.key, k.write(&s))
			return true
		}
	}
	return false
}

func setKey(config map[string]string, key, value string) {
	if value == "" {
		delete(config, key)
	} else {
		config[key] = value
	}
}

// number writes a limit without a unit, which LXD reads as bytes or as a count.
// 0 means no limit and becomes "".
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// setRootDisk sets the size, in bytes, of the instance's own root disk device.
// If the instance has none and size is not 0, it adds one in pool, the pool of
// the present root disk.
func setRootDisk(put *api.InstancePut, pool string, size int64) {
	name, device := rootDisk(put.Devices)
	if device == nil {
		if size == 0 {
			return
		}
		name, device = rootName, map[string]string{"type": "disk", "path": "/", "pool": pool}
	}
	device = maps.Clone(device)
	if size == 0 {
		delete(device, "size")
	} else {
		device["size"] = number(size)
	}
	if put.Devices == nil {
		put.Devices = map[string]map[string]string{}
	}
	put.Devices[name] = device
}
