package migrate

import (
	"cmp"
	"context"
	"fmt"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
)

// kinds are the kinds of objects that the worker reads and watches.
var kinds = []string{spec.KindMachine, spec.KindContainerType, spec.KindHost}

// Machine is a machine that is to move.
type Machine struct {
	state.Object
	spec.Migration
	Record spec.MachineRecord
	Status spec.MachineStatus
	// withheld names the event for which the migration waits, because nothing may
	// be deleted before, or is "".
	withheld string
	// target is the status of the container type to which the machine moves.
	target spec.TypeStatus
}

// Instance returns the name of the machine's instance.
func (m Machine) Instance() string {
	if m.Record.InstanceName != "" {
		return m.Record.InstanceName
	}
	return m.Name
}

// observed reports whether the provisioner has seen the present record.
func (m Machine) observed() bool { return m.Status.ObservedGeneration >= m.Generation }

// settled reports whether the machine is as declared after its move.
func (m Machine) settled() bool {
	ready := spec.ConditionOf(m.Status.Conditions, spec.ConditionReady).Status
	return m.observed() && (m.Status.State == spec.MachineRunning && ready || m.Status.State == spec.MachineStopped)
}

// open returns the machines with an open migration, sorted by name. The machines
// that are being moved come first.
func (w *Worker) open(ctx context.Context) (all []Machine, err error) {
	objects, _, err := w.Store.List(ctx, kinds...)
	if err != nil {
		return nil, fmt.Errorf("cannot read the declared machines: %w", err)
	}
	var recovery spec.Recovery
	if err := reconcile.Configure(objects, func(r spec.HostRecord) { recovery = r.Recovery }); err != nil {
		return nil, err
	}
	types := map[string]spec.TypeStatus{}
	var waiting []Machine
	for _, o := range objects {
		if o.Kind == spec.KindContainerType {
			var status spec.TypeStatus
			if err := o.Decode(nil, &status); err != nil {
				return nil, err
			}
			types[o.Name] = status
		}
	}
	for _, o := range objects {
		if o.Kind != spec.KindMachine {
			continue
		}
		if open, err := w.moving.Decode(o, migrates); err != nil {
			return nil, err
		} else if !open {
			continue
		}
		m := Machine{Object: o}
		if err := o.Decode(&m.Record, &m.Status); err != nil {
			return nil, err
		}
		m.Migration = *m.Record.Migration
		m.target = types[string(m.To)]
		m.withheld = cmp.Or(recovery.Withheld(m.From), recovery.Withheld(m.To))
		if m.Phase == spec.MigrationWaiting {
			waiting = append(waiting, m)
		} else {
			all = append(all, m)
		}
	}
	w.moving.Keep(objects)
	return append(all, waiting...), nil
}

// migrates reports whether the machine has an open migration. Few have, and the
// worker wakes at each change of any machine.
func migrates(o state.Object) (bool, error) {
	var record spec.MachineRecord
	err := o.Decode(&record, nil)
	return record.Migration.Open(), err
}
