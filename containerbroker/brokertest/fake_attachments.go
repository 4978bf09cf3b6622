package brokertest

import (
	"strings"

	"hostler/containerbroker"
)

// leaveDevices removes the interfaces and disks from the settings, because they
// no longer belong to a declaration. The instance keeps them.
func (g *fakeInstance) leaveDevices() {
	for _, s := range []*containerbroker.Settings{&g.instance.Stored, g.instance.Running} {
		if s != nil {
			clear(s.NICs)
			clear(s.Addresses)
			clear(s.Disks)
		}
	}
}

// Unplug takes a device from a running instance, as if another tool had done so.
// The device stays stored.
func (f *Fake) Unplug(name, field string) {
	f.with(name, func(g *fakeInstance) {
		if g.instance.Running != nil {
			g.instance.Running.Take(field, containerbroker.Settings{})
			f.publish(name, "updated")
		}
	})
}

// addressesOf returns the addresses of a machine's interfaces, without prefix
// lengths.
func addressesOf(m containerbroker.Machine) []string {
	var all []string
	for _, n := range m.NICs {
		all = append(all, containerbroker.Hosts(n.Addresses)...)
	}
	return all
}

func macsOf(m containerbroker.Machine) []string {
	var all []string
	for _, n := range m.NICs {
		all = append(all, strings.ToLower(n.MAC))
	}
	return all
}
