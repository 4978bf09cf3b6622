package lxd

import (
	"strconv"
	"strings"

	"hostler/containerbroker"
)

// The modes of a block device in a guest. Root in the guest gets past a mode:
// that nothing is written to a read-only device is up to the device itself,
// which has to be attached read-only on the host.
const (
	modeReadWrite = "0660"
	modeReadOnly  = "0440"
)

// diskKeys are the keys of a folder or block device that hostler writes or
// that would work against those; all others (limits, propagation) are left to
// people.
var diskKeys = []string{"type", "source", "path", "readonly", "mode", "major", "minor", "required", "shift", "pool"}

// diskDevice returns the device of a disk. A folder is given to the guest as
// it is: its files bear the host's user ids, and for an unprivileged guest it
// is the one who made the folder that maps them, with a mount of it for this
// guest. LXD could do so itself (shift), but LXD 5.0 takes newer kernels for
// unable to, and then the instance does not start.
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

// diskText describes the disk that a device is: as containerbroker.Disk does,
// with all that makes a difference.
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

// diskTexts describes the disks that a machine asks for and those that the
// instance has, as far as they are ours or bear a declared name.
func diskTexts(m containerbroker.Machine, own devices) (wanted, found map[string]string) {
	wanted, found = map[string]string{}, map[string]string{}
	declared := map[string]string{}
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
			found[name] = diskText(device)
		}
	}
	return wanted, found
}
