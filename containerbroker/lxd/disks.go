package lxd

import (
	"cmp"
	"strconv"
	"strings"

	"hostler/containerbroker"
)

// The modes of a block device in a guest. Root in the guest can bypass a mode,
// so a read-only device must also be read-only on the host.
const (
	modeReadWrite = "0660"
	modeReadOnly  = "0440"
)

// diskKeys are the keys of a folder or block device that hostler writes, or
// that would conflict with those. All other keys (limits, propagation) belong
// to the administrator.
var diskKeys = []string{"type", "source", "path", "readonly", "mode", "major", "minor", "required", "shift", "pool"}

// diskDevice returns the device of a disk. A folder keeps the host's user ids:
// for an unprivileged guest, the folder's provider maps them with an idmapped
// mount for this guest. hostler does not use LXD's own mapping (shift), because
// LXD 5.0 assumes that newer kernels cannot do it and then fails to start the
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

// diskText describes a device in the words of containerbroker.Disk, with
// everything that makes a difference.
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

// diskTexts describes the disks of a machine and of its instance. Devices of
// the instance count only if hostler made them or if they have a declared name.
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
