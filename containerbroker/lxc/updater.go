package lxc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
	"hostler/internal/fault"
)

// updater is a running update.
type updater struct {
	d    *Driver
	m    containerbroker.Machine
	want containerbroker.Settings
	pid  int // 0 if the instance does not run
	e    entry
	// conf and note are what the instance gets.
	conf config
	note *note
	nics bool // an interface changes
	seed bool // cloud-init's data changes
}

// change makes one change.
func (u *updater) change(ctx context.Context, field string) error {
	if name, is := containerbroker.NICOf(field); is {
		u.changeNIC(name)
		return nil
	}
	switch field {
	case containerbroker.FieldCPUs, containerbroker.FieldMemory:
		for _, l := range u.d.limits(u.want.Properties) {
			if l.field == field {
				u.conf.set(u.d.cgroupKey(l.file), l.value)
			}
		}
		if u.pid != 0 {
			return u.d.applyLimit(ctx, u.m.Name, field, u.want.Properties)
		}
	case containerbroker.FieldRootDisk:
		u.note.RootDisk = u.want.RootDisk
		if err := u.d.limitVolume(u.e.root, u.want.RootDisk); err != nil {
			return fmt.Errorf("cannot limit its root disk: %w", err)
		}
	case containerbroker.FieldAutostart:
		setAutostart(&u.conf, u.want.Autostart)
	case containerbroker.FieldPrivileged:
		u.d.setPrivileged(&u.conf, u.want.Privileged)
	case containerbroker.FieldNesting:
		setNesting(&u.conf, u.want.Nesting)
	case containerbroker.FieldRecord:
		u.note.Record = u.want.Record
	case containerbroker.FieldUserData:
		u.note.Told.UserData, u.seed = u.want.UserData, true
		if u.m.RerunFirstBoot {
			u.note.InstanceID = cloudinit.NextInstanceID(u.note.InstanceID, u.m.Stamp.UID)
		}
	case containerbroker.FieldNetworkConfig:
		u.note.Told.NetworkConfig, u.seed = u.want.NetworkConfig, true
	default:
		return fault.New(fault.Invalid, "it has no field %q", field)
	}
	return nil
}

func (u *updater) changeNIC(name string) {
	u.nics = true
	at := slices.IndexFunc(u.m.NICs, func(n containerbroker.NIC) bool { return n.Name == name })
	delete(u.note.Dropped, name)
	if at >= 0 {
		u.d.putNIC(&u.conf, u.note, u.m, u.m.NICs[at])
		return
	}
	delete(u.note.NICs, name)
	if u.note.Default == name {
		u.note.Default = ""
	}
	i, is := u.conf.findNIC(name)
	if is {
		u.conf.dropInterface(i.index)
	}
	if pair := cmp.Or(i.pair, u.e.note.Dropped[name]); u.pid != 0 && pair != "" {
		if u.note.Dropped == nil {
			u.note.Dropped = map[string]string{}
		}
		u.note.Dropped[name] = pair
	}
}

// changeDisks brings the named disks to their declaration. A disk below the folder of
// another is taken away before it and mounted after it, since it is hidden otherwise.
func (u *updater) changeDisks(ctx context.Context, changed []string) error {
	given, want, had, now := u.e.noted().Disks, map[string]containerbroker.Disk{}, map[string]givenDisk{}, map[string]givenDisk{}
	for _, disk := range u.m.Disks {
		want[disk.Name] = disk
	}
	for _, name := range changed {
		disk, is := want[name]
		if is {
			now[name] = givenOf(disk)
		}
		if g, has := given[name]; has && (!is || g != now[name]) {
			had[name] = g
		}
	}
	outer := slices.AppendSeq(slices.Collect(maps.Values(had)), maps.Values(now))
	for name, g := range given {
		if !slices.Contains(changed, name) && slices.ContainsFunc(outer, g.isBelow) {
			had[name], now[name] = g, g
		}
	}
	// The failure of one disk leaves no other unplugged: the guest would write below its
	// mount point.
	var failed error
	stuck := map[string]bool{} // disks that could not be unplugged
	if u.pid != 0 {
		for _, name := range slices.Backward(byTarget(had)) {
			if err := u.d.unplugDisk(ctx, u.e, u.pid, had[name]); err != nil {
				failed, stuck[name] = errors.Join(failed, err), true
				delete(now, name)
			}
		}
	}
	for _, name := range changed {
		if stuck[name] {
			continue
		}
		var err error
		if disk, is := want[name]; is {
			err = u.d.putDisk(&u.conf, u.note, u.e.dir, disk)
		} else {
			err = u.d.dropDisk(&u.conf, u.note, u.e.dir, name)
		}
		if err != nil {
			failed = errors.Join(failed, err)
			delete(now, name)
			if was, has := had[name]; has {
				now[name] = was
			}
		}
	}
	if u.pid == 0 {
		return failed
	}
	for _, name := range byTarget(now) {
		failed = errors.Join(failed, u.d.plugDisk(ctx, u.e, u.pid, name, now[name]))
	}
	return failed
}

// finish plugs the interfaces, and writes the files.
func (u *updater) finish(ctx context.Context) error {
	if u.nics && len(u.m.NICs) == 0 && len(u.conf.interfaces()) == 0 {
		u.d.putDefault(&u.conf, u.note, u.m.Stamp.UID)
	}
	if u.nics && u.pid != 0 {
		if err := u.d.replug(ctx, u.pid, u.e.conf, u.conf, u.note); err != nil {
			return err
		}
	}
	if u.seed && u.e.root != "" && !u.e.rootGone {
		if err := u.d.reseed(u.e.root, privileged(u.e.conf), seedOf(u.m, u.note)); err != nil {
			return fmt.Errorf("cannot write cloud-init's data: %w", err)
		}
	}
	if !slices.Equal(u.conf.lines, u.e.conf.lines) || !reflect.DeepEqual(u.note, u.e.note) {
		u.note.Store = u.m.Stamp.Store
	}
	if err := u.d.writeConfig(&u.e, u.conf); err != nil {
		return err
	}
	if reflect.DeepEqual(u.note, u.e.note) {
		return nil
	}
	return u.note.write(u.e.dir)
}

func (n *note) clone() *note {
	other := *n
	other.NICs, other.Disks, other.Dropped = maps.Clone(n.NICs), maps.Clone(n.Disks), maps.Clone(n.Dropped)
	return &other
}
