package kvm

import (
	"slices"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"hostler/internal/fault"
	"hostler/internal/pause"
)

// interfaceChanged brings one interface to the declared state. If the interface
// differs in any way, it is unplugged and a new one is plugged in.
func (u *updating) interfaceChanged(name string) error {
	var wanted *libvirtxml.DomainInterface
	for _, n := range wantedNICs(u.m, u.def.domain.UUID, u.d.opts.Network) {
		if nicName(n) == name {
			wanted = &n
		}
	}
	if u.running {
		if err := u.replugInterface(name, wanted); err != nil {
			return err
		}
	}
	list := &u.def.domain.Devices.Interfaces
	var address *libvirtxml.DomainAddress
	at := len(*list)
	for i, n := range *list {
		if nicName(n) == name {
			at, address = i, n.Address
		}
	}
	*list = slices.DeleteFunc(*list, func(n libvirtxml.DomainInterface) bool { return nicName(n) == name })
	if wanted != nil {
		wanted.Address = address // keep the slot, because the guest derives the interface's name from the slot
		*list = slices.Insert(*list, min(at, len(*list)), *wanted)
	}
	return nil
}

func nicName(n libvirtxml.DomainInterface) string {
	if name, ok := named(n.Alias, aliasDefault); ok {
		return name
	}
	name, _ := named(n.Alias, aliasNIC)
	return name
}

func (u *updating) replugInterface(name string, wanted *libvirtxml.DomainInterface) error {
	texts, at := foundNICs(u.live.domain.Devices.Interfaces, u.def.domain.UUID)
	if has, ok := at[name]; ok {
		if wanted != nil && texts[name] == u.want.NICs[name] {
			return nil
		}
		err := u.unplug(&has, func(def definition) bool {
			_, left := foundNICs(def.domain.Devices.Interfaces, u.def.domain.UUID)
			return left[name].MAC == nil
		})
		if err != nil {
			return err
		}
	}
	if wanted == nil {
		return nil
	}
	return u.plug(wanted)
}

// diskChanged brings one disk to the declared state.
func (u *updating) diskChanged(name string) error {
	list := &u.def.domain.Devices.Disks
	var wanted *libvirtxml.DomainDisk
	for _, disk := range u.m.Disks {
		if disk.Name == name {
			device := dataDisk(disk, "")
			wanted = &device
		}
	}
	if u.running {
		if err := u.replugDisk(name, wanted); err != nil {
			return err
		}
	}
	if err := u.diskGrew(name); err != nil {
		return err
	}
	is := func(d libvirtxml.DomainDisk) bool { n, ok := named(d.Alias, aliasDisk); return ok && n == name }
	*list = slices.DeleteFunc(*list, is)
	if wanted != nil {
		if u.running {
			// Use the target under which the disk was plugged in, e.g. vdc, for
			// the stored definition, too.
			live, err := readDefinition(u.c, u.dom, 0)
			if err != nil {
				return err
			}
			u.live = live
			_, at := foundDisks(live.domain.Devices.Disks)
			wanted.Target = at[name].Target
		}
		if wanted.Target == nil || wanted.Target.Dev == "" || taken(*list, wanted.Target.Dev) {
			wanted.Target = &libvirtxml.DomainDiskTarget{Dev: freeTarget(*list), Bus: "virtio"}
		}
		wanted.Address = nil
		*list = append(*list, *wanted)
	}
	return nil
}

func taken(disks []libvirtxml.DomainDisk, target string) bool {
	return slices.ContainsFunc(disks, func(d libvirtxml.DomainDisk) bool { return d.Target != nil && d.Target.Dev == target })
}

func (u *updating) replugDisk(name string, wanted *libvirtxml.DomainDisk) error {
	texts, at := foundDisks(u.live.domain.Devices.Disks)
	if has, ok := at[name]; ok {
		if wanted != nil && texts[name] == u.want.Disks[name] {
			return nil
		}
		if err := u.notMounted(&has); err != nil {
			return err
		}
		has.BackingStore = nil
		gone := func(def definition) bool {
			_, left := foundDisks(def.domain.Devices.Disks)
			return left[name].Target == nil
		}
		if err := u.unplug(&has, gone); err != nil {
			return err
		}
	}
	if wanted == nil {
		return nil
	}
	wanted.Target = &libvirtxml.DomainDiskTarget{Dev: freeTarget(slices.Concat(u.live.domain.Devices.Disks, u.def.domain.Devices.Disks)), Bus: "virtio"}
	return u.plug(wanted)
}

// device is a part of a domain that can be plugged in and unplugged.
type device interface{ Marshal() (string, error) }

// plug plugs a device into the running guest. If the guest has no free slot,
// plug does nothing, and the guest gets the device at its next start.
func (u *updating) plug(part device) error {
	live, err := readDefinition(u.c, u.dom, 0)
	if err != nil {
		return err
	}
	if u.live = live; live.slots == 0 {
		return nil
	}
	text, err := part.Marshal()
	if err != nil {
		return fault.New(fault.Invalid, "cannot describe the device: %v", err)
	}
	return u.c.Call("plug it in", func(l *libvirt.Libvirt) error {
		return l.DomainAttachDeviceFlags(u.dom, text, uint32(libvirt.DomainDeviceModifyLive))
	})
}

// unplug asks the running guest to release a device, and waits until gone
// reports that the device has gone. The guest may refuse or delay, so unplug
// fails after UnplugTimeout.
func (u *updating) unplug(part device, gone func(definition) bool) error {
	text, err := part.Marshal()
	if err != nil {
		return fault.New(fault.Invalid, "cannot describe the device: %v", err)
	}
	deadline := time.Now().Add(u.d.opts.UnplugTimeout)
	var asked time.Time
	var refused error
	for {
		if time.Since(asked) >= askEvery {
			// Repeat the request, because a guest that is still booting ignores
			// it.
			asked = time.Now()
			refused = u.c.Call("unplug it", func(l *libvirt.Libvirt) error {
				return l.DomainDetachDeviceFlags(u.dom, text, uint32(libvirt.DomainDeviceModifyLive))
			})
		}
		live, err := readDefinition(u.c, u.dom, 0)
		if err != nil {
			return err
		}
		if gone(live) {
			u.live = live
			return nil
		}
		if time.Now().After(deadline) {
			if refused != nil {
				return fault.New(fault.Transient, "the guest did not release it within %s: %v", u.d.opts.UnplugTimeout, refused)
			}
			return fault.New(fault.Transient, "the guest did not release it within %s", u.d.opts.UnplugTimeout)
		}
		if err := pause.For(u.c.ctx, lookEach); err != nil {
			return err
		}
	}
}

var (
	_ device = (*libvirtxml.DomainDisk)(nil)
	_ device = (*libvirtxml.DomainInterface)(nil)
)
