package lxd

import (
	"cmp"
	"strconv"
	"strings"

	"hostler/containerbroker"
)

// The file modes of a block device in a guest. The guest's root user can bypass
// a mode, so a read-only device must also be read-only on the host.
const (
	modeReadWrite = "0660"
	modeReadOnly  = "0440"
)

// diskKeys are the keys of a folder or block device that hostler writes, and
// the keys that would conflict with them. All other keys (limits, propagation)
// belong to the administrator.
var diskKeys = []string{"type", "source", "path", "readonly", "mode", "major", "minor", "required", "shift", "pool"}

// diskDevice returns the device of a disk. LXD does not map the user ids of a
// folder. For an unprivileged guest, the folder's source is already an idmapped
// mount for this guest. hostler does not use LXD's mapping (shift), because LXD
// 5.0 assumes that newer kernels cannot do it and then fails to start the
// instance.
func diskDevice(disk containerbroker.Disk) map[string]string {
	if disk.Path == "" {
		device := map[string]string{"type": "unix-block", "source": disk.Source, "path": disk.Device, "mode": modeReadWrite}
		if disk.ReadOnly {
			device["mode"] = modeReadOnly
		}
		return device
	}
	device := map[string]string{"type": "disk", "source": disk.Source, "path": disk.Path}
	if disk.ReadOnly {
		device["readonly"] = "true"
	}
	return device
}

// diskText describes a device as Disk.String() does, so that descriptions can
// be compared. It adds other keys of diskKeys that are set.
func diskText(device map[string]string) string {
	words := []string{device["source"] + " at " + device["path"]}
	readOnly := isTrue(device["readonly"])
	switch kind := device["type"]; kind {
	case "disk":
	case "unix-block":
		words[0] = device["source"] + " as " + device["path"]
		readOnly = device["mode"] == modeReadOnly
		if !readOnly && device["mode"] != modeReadWrite {
			words = append(words, "mode "+device["mode"])
		}
	default:
		words = append(words, "type "+strconv.Quote(kind))
	}
	if readOnly {
		words = append(words, "read-only")
	}
	for _, key := range []string{"major", "minor", "required", "shift", "pool"} {
		if device[key] != "" {
			words = append(words, key+" "+device[key])
		}
	}
	return strings.Join(words, ", ")
}

// diskTexts describes the disks of a machine and of its instance, by name. It
// leaves out devices of the instance that hostler did not make, unless they
// have a declared name.
func diskTexts(m containerbroker.Machine, own devices) (wanted, found map[string]string) {
	wanted, found = map[string]string{}, map[string]string{}
	declared, known := map[string]string{}, map[string]string{}
	for _, name := range m.KnownDisks {
		known[deviceName(name)] = name
	}
	for _, disk := range m.Disks {
		wanted[disk.Name] = diskText(diskDevice(disk))
		declared[deviceName(disk.Name)] = disk.Name
	}
	for name, device := range own {
		full, wants := declared[name]
		switch {
		case wants && device[keyOwner] == "":
			found[full] = diskText(device) + " (not made by hostler)"
		case wants:
			found[full] = diskText(device)
		case device[keyOwner] != "" && (device["type"] == "disk" || device["type"] == "unix-block"):
			found[cmp.Or(known[name], name)] = diskText(device)
		}
	}
	return wanted, found
}
