package provisioner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// uses returns the machine's half of its attachments. It stays as it is while
// the instance's state is unknown, and while a create may still arrive.
func uses(d Desired, inst *containerbroker.Instance, arrives bool, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) []string {
	inst = known(d, inst)
	if inst == nil && arrives || inst != nil && (inst.Status == containerbroker.StatusBusy || inst.Status == containerbroker.StatusUnknown) {
		return d.Status.Uses
	}
	var declared, offered, has []string
	if d.Life == state.Alive {
		declared = spec.Objects(d.Record.Machine.Storage)
		offered = slices.DeleteFunc(spec.Objects(d.Record.Machine.Storage), func(object string) bool { return slices.Contains(d.Waiting, object) })
	}
	if unused := d.Status.Uses != nil && len(d.Status.Uses)+len(declared) == 0; inst == nil || inst.Status == containerbroker.StatusHalfMade || unused {
		return spec.Uses(declared, offered, nil, true)
	}
	for _, c := range detaching(d.Machine, *inst, diff) {
		has = append(has, objectOf(c))
	}
	return spec.Uses(declared, offered, has, inst.Status == containerbroker.StatusStopped)
}

// confirm returns the steps without those of taking machines whose storage is
// no longer offered as it was when the steps were planned. The storage worker
// may have withdrawn an offer before it could read that the machine takes it.
func (w *Worker) confirm(ctx context.Context, steps []Step, taking map[string]Desired) ([]Step, error) {
	if len(taking) == 0 {
		return steps, nil
	}
	objects, _, err := w.Store.List(ctx, spec.KindVolume, spec.KindFilesystem)
	around, unreadable := surroundingsOf(objects)
	if err := cmp.Or(err, unreadable); err != nil {
		return nil, fmt.Errorf("cannot read the offered storage: %w", err)
	}
	return slices.DeleteFunc(steps, func(s Step) bool {
		d, is := taking[s.UID]
		disks, _ := around.disks(d)
		return is && !slices.Equal(disks, d.Machine.Disks)
	}), nil
}

// detaching returns the changes that detach all disks from the instance.
func detaching(m containerbroker.Machine, inst containerbroker.Instance, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) []containerbroker.Change {
	m.Disks = nil
	return slices.DeleteFunc(slices.Clone(diff(m, inst)), func(c containerbroker.Change) bool {
		_, is := containerbroker.DiskOf(c.Field)
		return !is
	})
}

// diskPrefixes begin the names of disks, by the kind of the attached object.
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
func (d Desired) knownDisks() []string {
	var names []string
	for _, object := range append(spec.Objects(d.Record.Machine.Storage), d.Status.Uses...) {
		names = append(names, diskName(object))
	}
	return names
}

// takenAway returns the changes that detach from the instance the disks that
// its machine no longer declares. These changes do not wait for missing
// storage, since that storage may wait for them: e.g. the declared volume
// becomes free only after the undeclared volume was detached.
func takenAway(d Desired, inst containerbroker.Instance, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) []containerbroker.Change {
	declared := spec.Objects(d.Record.Machine.Storage)
	return slices.DeleteFunc(detaching(d.Machine, inst, diff), func(c containerbroker.Change) bool { return slices.Contains(declared, objectOf(c)) })
}
