package lxd

import (
	"maps"
	"slices"
	"strings"
)

// keyLeft lists, one per line, the devices that have hostler's mark but belong
// to the instance: those it had when another machine adopted it. The mark stays
// on them, since LXD unplugs and replugs a running guest's device when any of
// its keys changes.
const keyLeft = "user.hostler.left"

// leaveDevices notes that all present devices with hostler's mark belong to the
// instance.
func leaveDevices(config map[string]string, all devices) {
	var left []string
	for name, device := range all {
		if device[keyOwner] != "" {
			left = append(left, name)
		}
	}
	noteLeft(config, left)
}

// claimDevices notes that these devices are hostler's again, if they were left.
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

// ownDevices returns an instance's own devices, with hostler's mark only on
// hostler's devices.
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
