package lxd

import (
	"maps"
	"slices"
	"strings"
)

// keyLeft lists, a line each, the devices that bear our mark and belong to the
// instance all the same: what hostler gave it before it was let go. The mark
// stays on them, since LXD plugs a running guest's device out and in again
// when any key of it changes.
const keyLeft = "user.hostler.left"

// leaveDevices notes that all the devices there are belong to the instance.
func leaveDevices(config map[string]string, all devices) {
	var left []string
	for name, device := range all {
		if device[keyOwner] != "" {
			left = append(left, name)
		}
	}
	noteLeft(config, left)
}

// claimDevices notes that these devices are ours again, if they were left.
func claimDevices(config map[string]string, names []string) {
	noteLeft(config, slices.DeleteFunc(leftDevices(config), func(name string) bool { return slices.Contains(names, name) }))
}

func noteLeft(config map[string]string, left []string) {
	if len(left) == 0 {
		delete(config, keyLeft)
		return
	}
	slices.Sort(left)
	config[keyLeft] = strings.Join(left, "\n")
}

func leftDevices(config map[string]string) []string {
	return slices.DeleteFunc(strings.Split(config[keyLeft], "\n"), func(name string) bool { return name == "" })
}

// ownDevices are an instance's own devices, our mark on those that are ours.
func ownDevices(config map[string]string, all devices) devices {
	left := leftDevices(config)
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
