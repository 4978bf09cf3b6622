package lxc

import (
	"context"
	"errors"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// Update implements containerbroker.Broker. It changes the running instance
// first and its files then. After an interruption the files still show the
// difference, so the change is made again. It keeps lines of the config that
// hostler does not write.
func (d *Driver) Update(ctx context.Context, m containerbroker.Machine, changes []containerbroker.Change) error {
	return fault.Explain(d.update(ctx, m, changes), "cannot update instance %q", m.Name)
}

func (d *Driver) update(ctx context.Context, m containerbroker.Machine, changes []containerbroker.Change) error {
	want, err := settingsOf(m)
	if err != nil {
		return err
	}
	unlock, err := d.lock(ctx, m.Name)
	if err != nil {
		return err
	}
	defer unlock()
	e, err := d.lookup(m.Name, m.Stamp)
	if err != nil {
		return err
	}
	if err := containerbroker.CheckUpdate(changes, want, containerbroker.Instance{Raw: raw{e}}, impactOf); err != nil {
		return err
	}
	pid, err := d.runningPID(ctx, m.Name)
	if err != nil {
		return err
	}
	u := updater{d: d, m: m, want: want, pid: pid, e: e, conf: e.conf.clone(), note: e.note.clone()}
	var refused error
	var disks []string
	for _, change := range changes {
		if name, is := containerbroker.DiskOf(change.Field); is {
			disks = append(disks, name)
			continue
		}
		err := u.change(ctx, change.Field)
		if change.Field == containerbroker.FieldMemory && fault.Is(err, fault.Transient) {
			refused = err // the other changes can be made
		} else if err != nil {
			return err
		}
	}
	if err := u.changeDisks(ctx, disks); err != nil {
		return err
	}
	return errors.Join(u.finish(ctx), refused)
}
