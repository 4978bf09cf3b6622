package kvm

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
	"hostler/internal/fault"
)

// Update implements containerbroker.Broker. It first changes the running guest
// as far as possible, and then replaces the whole definition. If it is
// interrupted between the two, the next Diff finds the remaining changes.
func (d *Driver) Update(ctx context.Context, m containerbroker.Machine, changes []containerbroker.Change) error {
	return fault.Explain(d.update(ctx, m, changes), "cannot update instance %q", m.Name)
}

func (d *Driver) update(ctx context.Context, m containerbroker.Machine, changes []containerbroker.Change) error {
	want, err := settingsOf(m)
	if err != nil {
		return err
	}
	c, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	dom, err := c.domain(m.Name)
	if err != nil {
		return err
	}
	def, err := readDefinition(c, dom, xmlInactiveSecure)
	if err != nil {
		return err
	}
	if !def.note.owned(m.Stamp) {
		return fault.New(fault.Conflict, "it has another stamp")
	}
	have := containerbroker.Instance{Stored: containerbroker.Settings{Properties: containerbroker.Properties{RootDisk: def.note.RootDisk}}}
	if err := containerbroker.CheckUpdate(changes, want, have, impactOf); err != nil {
		return err
	}
	if len(changes) == 0 {
		return nil
	}
	defer d.changed(dom.UUID)
	now, err := status(c, dom)
	if err != nil {
		return err
	}
	u := updating{d: d, c: c, dom: dom, m: m, want: want, def: &def, running: running(now)}
	if u.running {
		if u.live, err = readDefinition(c, dom, 0); err != nil {
			return err
		}
	}
	changes, refused := u.refuseMemory(changes)
	if len(changes) == 0 {
		return refused
	}
	for n, change := range changes {
		if err := u.apply(change.Field); err != nil {
			if n > 0 { // store the changes that the guest already has
				if err := u.finish(ctx, changes[:n]); err != nil {
					d.log.Debug("the definition lacks the changed setting", "instance", m.Name, "error", err)
				}
			}
			return fmt.Errorf("%s: %w", change.Field, err)
		}
	}
	return cmp.Or(u.finish(ctx, changes), refused)
}

// updating holds the state of one call of Update.
type updating struct {
	d    *Driver
	c    *conn
	dom  libvirt.Domain
	m    containerbroker.Machine
	want containerbroker.Settings
	// def is the definition that will be written. live is the running guest.
	def     *definition
	live    definition
	running bool
}

// apply brings one field to the wanted value, in u.def and, if possible, in the
// running guest.
func (u *updating) apply(field string) error {
	if name, ok := containerbroker.NICOf(field); ok {
		return u.interfaceChanged(name)
	}
	if name, ok := containerbroker.DiskOf(field); ok {
		return u.diskChanged(name)
	}
	for _, p := range properties {
		if p.field == field {
			return u.propertyChanged(p)
		}
	}
	switch field {
	case containerbroker.FieldAutostart:
		return setAutostart(u.c, u.dom, u.want.Autostart)
	case containerbroker.FieldRootDisk:
		return u.rootDiskChanged()
	case containerbroker.FieldNetworkConfig, containerbroker.FieldUserData, containerbroker.FieldRecord:
		return nil // written by finish
	}
	return fault.New(fault.Invalid, "it has no field %q", field)
}

func (u *updating) propertyChanged(p property) error {
	if u.running && p.live != nil {
		if err := p.live(u); err != nil {
			return err
		}
	}
	return p.write(&u.def.domain, u.want.Properties)
}

// rootDiskChanged grows the root disk.
func (u *updating) rootDiskChanged() error {
	file := fileOf(u.def.domain.Devices.Disks, rootTarget)
	if u.running {
		err := u.c.Call("grow the root disk", func(l *libvirt.Libvirt) error {
			// The note may be older than the disk, which must not shrink.
			if _, has, _, err := l.DomainGetBlockInfo(u.dom, rootTarget, 0); err != nil || int64(has) >= u.want.RootDisk {
				return err
			}
			return l.DomainBlockResize(u.dom, rootTarget, uint64(u.want.RootDisk), libvirt.DomainBlockResizeBytes)
		})
		if err != nil {
			return err
		}
	} else {
		where, err := u.c.openPool(u.def.note.Pool)
		if err != nil {
			return err
		}
		v, err := where.lookup(filepath.Base(file))
		if err != nil {
			return err
		}
		if has, err := where.capacity(v); err != nil || has < u.want.RootDisk {
			if err != nil {
				return err
			}
			err := u.c.Call("grow the root disk", func(l *libvirt.Libvirt) error {
				return l.StorageVolResize(v, uint64(u.want.RootDisk), 0)
			})
			if err != nil {
				return err
			}
		}
	}
	u.def.note.RootDisk = u.want.RootDisk
	return nil
}

// finish writes the definition with its note, and a new seed if the changes
// concern cloud-init.
func (u *updating) finish(ctx context.Context, changes []containerbroker.Change) error {
	n := u.def.note
	key, err := u.d.sealKey(ctx, u.c, n.Namespace, true)
	if err != nil {
		return err
	}
	n.Store = u.m.Stamp.Store
	var replugged []string
	for _, change := range changes {
		if name, is := containerbroker.NICOf(change.Field); is {
			n.Left = slices.DeleteFunc(n.Left, func(left string) bool { return left == name })
			replugged = append(replugged, name)
		}
		switch change.Field {
		case containerbroker.FieldRecord:
			if n.Record, err = seal(key, u.m.Stamp.Record); err != nil {
				return fault.New(fault.Invalid, "cannot seal the record: %v", err)
			}
		case containerbroker.FieldUserData:
			n.UserData, n.PlainProxies = digest(key, u.want.UserData), !cloudinit.HasProxyUsers(u.m.Guest)
		case containerbroker.FieldNetworkConfig:
			n.NetworkConfig = u.want.NetworkConfig
		}
	}
	n.Addresses = addressesAfter(n.Addresses, u.want.Addresses, replugged)
	old := fileOf(u.def.domain.Devices.Disks, seedTarget)
	if seed, rerun := u.needsSeed(changes); seed && old != "" && !u.m.KeepGuest && n.Pool != "" {
		if err := u.reseed(old, rerun); err != nil {
			return err
		}
	}
	if err := u.d.redefine(u.c, u.def); err != nil {
		return err
	}
	if now := fileOf(u.def.domain.Devices.Disks, seedTarget); now != old {
		where, err := u.c.openPool(n.Pool)
		if err != nil {
			return err
		}
		return where.remove(filepath.Base(old)) // a running guest still has the old file open
	}
	return nil
}

// needsSeed reports whether the changes need a new seed, and whether the seed
// must make cloud-init repeat the first boot.
func (u *updating) needsSeed(changes []containerbroker.Change) (seed, rerun bool) {
	for _, change := range changes {
		_, nic := containerbroker.NICOf(change.Field)
		user := change.Field == containerbroker.FieldUserData
		seed = seed || nic || user || change.Field == containerbroker.FieldNetworkConfig
		rerun = rerun || user
	}
	return seed, rerun
}

// reseed writes a new seed beside the old one and sets its path in u.def.
func (u *updating) reseed(old string, rerun bool) error {
	where, err := u.c.openPool(u.def.note.Pool)
	if err != nil {
		return err
	}
	image, sum, err := seedOf(u.m, u.def.domain.UUID)
	if had, missing := where.read(filepath.Base(old)); missing == nil {
		image, sum, err = seedAfter(had, u.m, u.def.domain.UUID, rerun)
	} else if !fault.Is(missing, fault.NotFound) {
		return missing
	}
	if err != nil {
		return err
	}
	file := where.path(seedName(u.m.Name, u.def.domain.UUID, sum))
	if file == old {
		return nil
	}
	if err := where.write(filepath.Base(file), image); err != nil {
		return err
	}
	for i := range u.def.domain.Devices.Disks {
		disk := &u.def.domain.Devices.Disks[i]
		if disk.Target != nil && disk.Target.Dev == seedTarget {
			disk.Source.File.File = file
		}
	}
	return nil
}

// redefine replaces a domain's definition by def, including def's note.
func (d *Driver) redefine(c *conn, def *definition) error {
	metadata, err := replaceNote(def)
	if err != nil {
		return err
	}
	def.domain.Metadata = &libvirtxml.DomainMetadata{XML: metadata}
	def.domain.ID = nil
	text, err := def.domain.Marshal()
	if err != nil {
		return fault.New(fault.Invalid, "cannot write its definition: %v", err)
	}
	_, err = slowCall(d, c, "change the definition", func(l *libvirt.Libvirt) (libvirt.Domain, error) { return l.DomainDefineXMLFlags(text, 0) })
	return err
}
