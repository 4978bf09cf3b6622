package lxc

import (
	"maps"

	"hostler/containerbroker"
)

// settingsOf checks the stamp of a machine and returns the machine's settings.
func settingsOf(m containerbroker.Machine) (containerbroker.Settings, error) {
	if err := checkName("the name of an instance", m.Name); err != nil {
		return containerbroker.Settings{}, err
	}
	if err := m.Stamp.Check(); err != nil {
		return containerbroker.Settings{}, err
	}
	return containerbroker.SettingsOf(m)
}

// Diff implements containerbroker.Differ.
func (d *Driver) Diff(m containerbroker.Machine, i containerbroker.Instance) []containerbroker.Change {
	have, ok := i.Raw.(raw)
	if !ok {
		return nil
	}
	want, err := settingsOf(m)
	if err != nil {
		return containerbroker.Refused(err)
	}
	want.UserData = containerbroker.ComparableUserData(m, want.UserData, i.Stored.UserData)
	want.NICs, i.Stored.NICs = d.nicTexts(m, have.entry)
	want.Disks, i.Stored.Disks = diskTexts(m, have.entry)
	if i.Running != nil {
		now := *i.Running
		now.NICs, now.Disks = plugged(i.Stored.NICs, now.NICs, have.entry.noted().NICs), plugged(i.Stored.Disks, now.Disks, have.entry.noted().Disks)
		for name := range have.entry.noted().Dropped {
			if back := i.Running.NICs[name]; back != "" {
				now.NICs[name] = back
			}
		}
		i.Running = &now
	}
	if m.RootDisk == 0 && !have.entry.inPool {
		want.RootDisk = i.Stored.RootDisk // hostler did not make it
	}
	return containerbroker.Compare(want, i, impactOf)
}

// impactOf is the containerbroker.Rule of this driver.
func impactOf(field string, _ containerbroker.Settings, i containerbroker.Instance) (containerbroker.Impact, string) {
	have, is := i.Raw.(raw)
	switch {
	case !is || have.entry.inPool:
	case field == containerbroker.FieldRootDisk && have.entry.root != "":
		return containerbroker.ImpactRecreate, "hostler did not make its root filesystem, which has no limit"
	case field == containerbroker.FieldPrivileged:
		return containerbroker.ImpactRecreate, "hostler did not make its root filesystem, whose files keep their owners"
	}
	return "", ""
}

// diskTexts describes the disks of a machine and of its instance, by name.
func diskTexts(m containerbroker.Machine, e entry) (wanted, found map[string]string) {
	wanted, found = map[string]string{}, map[string]string{}
	for _, disk := range m.Disks {
		wanted[disk.Name] = disk.String()
	}
	if e.note != nil {
		for name, disk := range e.note.Disks {
			found[name] = disk.disk(name).String()
		}
	}
	return wanted, found
}

// nicTexts describes the interfaces of a machine and of its instance, by name.
// It leaves out interfaces that hostler did not make for the machine, unless
// they have a declared name.
func (d *Driver) nicTexts(m containerbroker.Machine, e entry) (wanted, found map[string]string) {
	wanted, found = map[string]string{}, map[string]string{}
	for _, n := range m.NICs {
		wanted[n.Name] = d.filled(m, n).String()
	}
	for _, i := range e.conf.interfaces() {
		given, ours := e.given(i.name)
		text := nicText(i, given)
		switch {
		case ours:
			found[i.name] = text
		case e.note != nil && e.note.Default == i.name && len(m.NICs) > 0:
			found[i.name] = text + " (of a machine without interfaces)"
		case wanted[i.name] != "":
			found[i.name] = text + " (not made by hostler)"
		}
	}
	if e.note != nil {
		for name := range e.note.NICs {
			if found[name] == "" {
				found[name] = "gone" // its lines were removed from the config
			}
		}
	}
	return wanted, found
}

// nicText describes an interface of a config as NIC.String() does.
func nicText(i iface, given givenNIC) string {
	text := containerbroker.NIC{Bridge: i.link, MAC: i.hwaddr, MTU: i.mtu, Addresses: given.Addresses}.String()
	if i.kind != "veth" {
		text += ", type " + i.kind
	}
	return text
}

// plugged returns the descriptions of stored devices without those of hostler
// that the running guest does not have.
func plugged[T any](stored, running map[string]string, ours map[string]T) map[string]string {
	now := maps.Clone(stored)
	maps.DeleteFunc(now, func(name, _ string) bool {
		_, given := ours[name]
		return given && running[name] == ""
	})
	return now
}

// filled returns an interface with the values that the driver chooses.
func (d *Driver) filled(m containerbroker.Machine, n containerbroker.NIC) containerbroker.NIC {
	if n.MTU == 0 {
		n.MTU = d.opts.MTU
	}
	if n.MAC == "" {
		n.MAC = macOf(m.Stamp.UID, n.Name)
	}
	return n
}

// disk returns the declaration of a given disk.
func (g givenDisk) disk(name string) containerbroker.Disk {
	return containerbroker.Disk{Name: name, Source: g.Source, Path: g.Path, Device: g.Device, ReadOnly: g.ReadOnly}
}

func givenOf(disk containerbroker.Disk) givenDisk {
	return givenDisk{Source: disk.Source, Path: disk.Path, Device: disk.Device, ReadOnly: disk.ReadOnly}
}
