package lxd

import (
	"maps"
	"strconv"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// maxRecord bounds Stamp.Record in bytes.
const maxRecord = 48 << 10

// rootName is the name of the root disk device that hostler adds.
const rootName = "root"

// settingsOf returns the settings of a machine, after a check of its stamp.
func settingsOf(m containerbroker.Machine) (containerbroker.Settings, error) {
	if m.Stamp.Namespace == "" || m.Stamp.UID == "" {
		return containerbroker.Settings{}, fault.New(fault.Invalid, "the stamp has no namespace or no uid")
	}
	if len(m.Stamp.Record) > maxRecord {
		return containerbroker.Settings{}, fault.New(fault.Invalid, "its record has %d bytes, the limit is %d", len(m.Stamp.Record), maxRecord)
	}
	return containerbroker.SettingsOf(m)
}

// configOf returns the configuration keys of a new instance. It always writes
// the three switches (autostart, privileged, nesting), so that no profile can
// turn them on.
func configOf(s containerbroker.Settings, stamp containerbroker.Stamp) map[string]string {
	config := map[string]string{}
	for _, field := range []string{
		containerbroker.FieldCPUs, containerbroker.FieldMemory, containerbroker.FieldAutostart,
		containerbroker.FieldPrivileged, containerbroker.FieldNesting, containerbroker.FieldUserData,
		containerbroker.FieldNetworkConfig,
	} {
		setField(config, field, s)
	}
	writeStamp(config, stamp)
	return config
}

// writeStamp writes the stamp's keys, and removes the keys of empty fields.
func writeStamp(config map[string]string, s containerbroker.Stamp) {
	for key, value := range map[string]string{
		keyNamespace: s.Namespace, keyUID: s.UID, keyToken: s.Token, keyRecord: s.Record, keyStore: s.Store,
	} {
		setKey(config, key, value)
	}
}

// setField writes a field to a configuration. It returns false if the field is
// no configuration key.
func setField(config map[string]string, field string, s containerbroker.Settings) bool {
	key, value := "", ""
	switch field {
	case containerbroker.FieldCPUs:
		key, value = keyCPUs, number(int64(s.CPUs))
	case containerbroker.FieldMemory:
		key, value = keyMemory, number(s.Memory)
	case containerbroker.FieldAutostart:
		key, value = keyAutostart, strconv.FormatBool(s.Autostart)
	case containerbroker.FieldPrivileged:
		key, value = keyPrivileged, strconv.FormatBool(s.Privileged)
	case containerbroker.FieldNesting:
		key, value = keyNesting, strconv.FormatBool(s.Nesting)
	case containerbroker.FieldUserData:
		key, value = keyUserData, s.UserData
	case containerbroker.FieldNetworkConfig:
		key, value = keyNetworkConfig, s.NetworkConfig
	case containerbroker.FieldRecord:
		key, value = keyRecord, s.Record
	default:
		return false
	}
	setKey(config, key, value)
	return true
}

func setKey(config map[string]string, key, value string) {
	if value == "" {
		delete(config, key)
	} else {
		config[key] = value
	}
}

// number writes a limit as a bare number, which LXD reads as bytes or a count.
// 0 means no limit and becomes "".
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// setRootDisk gives the instance a root disk device of its own with the wanted
// size, in bytes. pool is the pool of its present root disk.
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
