package provisioner

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// uses returns the storage and the NICs that the machine uses, for its status.
// They stay as they are while the instance's state is unknown. They also stay
// if arrives is true, i.e. an instance may still appear from an earlier create.
func uses(d *Desired, inst *containerbroker.Instance, arrives bool, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) (storage, nics []string) {
	inst = known(d, inst)
	if inst == nil && arrives || inst != nil && (inst.Status == containerbroker.StatusBusy || inst.Status == containerbroker.StatusUnknown) {
		return d.Status.Uses, d.Status.UsesNICs
	}
	var declared, offered, has, declaredNICs, offeredNICs, hasNICs []string
	m := d.Machine
	m.Disks = nil
	if d.Life == state.Alive {
		declared = spec.Objects(d.Record.Machine.Storage)
		offered = slices.DeleteFunc(spec.Objects(d.Record.Machine.Storage), func(object string) bool { return slices.Contains(d.Waiting, object) })
		declaredNICs = spec.NICObjects(d.Record.Machine.Networks)
		for _, n := range m.NICs {
			offeredNICs = append(offeredNICs, spec.NICObject(d.Record.Machine.Networks[n.Name].Network, n.Name))
		}
	} else {
		m.NICs = nil
	}
	none := inst == nil || inst.Status == containerbroker.StatusHalfMade
	unused := d.Status.Uses != nil && len(d.Status.Uses)+len(declared) == 0 && d.Status.UsesNICs != nil &&
		!slices.ContainsFunc(d.Status.UsesNICs, func(nic string) bool { return !slices.Contains(offeredNICs, nic) })
	if none || unused {
		return spec.Uses(declared, offered, nil, true), spec.Uses(declaredNICs, offeredNICs, nil, true)
	}
	differ := false
	for _, c := range diff(m, *inst) {
		if c.Field == containerbroker.FieldDeclaration { // the driver could not compare what the instance has
			differ, has, hasNICs = true, d.Status.Uses, d.Status.UsesNICs
		}
		if name, is := containerbroker.NICOf(c.Field); is { // the instance has the NIC, but not as declared
			differ = true
			hasNICs = append(hasNICs, slices.DeleteFunc(slices.Clone(d.Status.UsesNICs), func(nic string) bool { return !strings.HasSuffix(nic, "/"+name) })...)
		} else if _, is := containerbroker.DiskOf(c.Field); is {
			has = append(has, objectOf(c))
		}
	}
	stopped := inst.Status == containerbroker.StatusStopped
	storage, nics = spec.Uses(declared, offered, has, stopped), spec.Uses(declaredNICs, offeredNICs, hasNICs, stopped)
	if differ && d.Status.UsesNICs == nil {
		nics = nil // an earlier version did not record the networks of the instance
	}
	return storage, nics
}

// confirm returns the steps that can still be carried out. It leaves out the
// steps of a machine in taking if its storage or NICs are no longer offered as
// they were for the plan. The worker of the storage or network may have
// withdrawn an offer before it could read that the machine uses it. confirm also
// leaves out the steps of a machine in taking whose status write was lost.
func (w *Worker) confirm(ctx context.Context, steps []Step, taking map[string]Desired) ([]Step, error) {
	if len(taking) == 0 {
		return steps, nil
	}
	objects, _, err := w.Store.List(ctx, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem)
	around, unreadable := newDecoder().surroundings(objects)
	if err := cmp.Or(err, unreadable); err != nil {
		return nil, fmt.Errorf("cannot read the offered attachments: %w", err)
	}
	return slices.DeleteFunc(steps, func(s Step) bool {
		d, is := taking[s.UID]
		if !is {
			return false
		}
		if !w.Stored(d.id()) {
			w.SignalWithin(busyDelay)
			return true
		}
		now := Desired{Name: d.Name, UID: d.UID, Record: d.Record}
		around.attach(&now)
		return !slices.Equal(now.Machine.Disks, d.Machine.Disks) || !reflect.DeepEqual(now.Machine.NICs, d.Machine.NICs)
	}), nil
}

// detaching returns the changes that detach all volumes and filesystems from
// the instance.
func detaching(m containerbroker.Machine, inst containerbroker.Instance, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) []containerbroker.Change {
	m.Disks = nil
	return slices.DeleteFunc(slices.Clone(diff(m, inst)), func(c containerbroker.Change) bool {
		_, is := containerbroker.DiskOf(c.Field)
		return !is
	})
}

// diskPrefixes holds the prefixes of the names of disks, by the kind of the
// attached object.
var diskPrefixes = map[string]string{spec.KindVolume: "vol-", spec.KindFilesystem: "fs-"}

// diskName returns the name of the disk of a volume or filesystem (KIND/NAME).
func diskName(object string) string {
	kind, name, _ := strings.Cut(object, "/")
	return diskPrefixes[kind] + name
}

// objectOf returns the volume or filesystem of a disk's change as KIND/NAME.
func objectOf(c containerbroker.Change) string {
	disk, _ := containerbroker.DiskOf(c.Field)
	for kind, prefix := range diskPrefixes {
		if name, is := strings.CutPrefix(disk, prefix); is {
			return kind + "/" + name
		}
	}
	return disk
}

// knownDisks returns the names of the disks that the machine declares or uses.
func (d *Desired) knownDisks() []string {
	var names []string
	for _, object := range append(spec.Objects(d.Record.Machine.Storage), d.Status.Uses...) {
		names = append(names, diskName(object))
	}
	return names
}
