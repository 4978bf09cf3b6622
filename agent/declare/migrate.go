package declare

import (
	"maps"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// BeginMigration records that a machine waits for its migration.
func (w *State) BeginMigration(name, uid string, m spec.Migration) error {
	object := spec.KindMachine + "/" + name
	if o := w.objects[object]; o != nil {
		last := o.machine().Migration
		if last.Open() {
			return fault.New(fault.Conflict, "the migration of %s has begun already", object)
		}
		m.Began = last.LastAttempt() // it may have left a copy
	}
	m.Phase = spec.MigrationWaiting
	return w.SetMigration(name, uid, m)
}

// SetMigration records the progress of a machine's migration. From the phase
// "moved" on, the machine and its document have the new type.
func (w *State) SetMigration(name, uid string, m spec.Migration) error {
	object := spec.KindMachine + "/" + name
	o := w.objects[object]
	if o == nil || o.before.UID != uid {
		return notThere(object)
	}
	r := o.machine()
	if m.Phase != spec.MigrationMoved {
		r.Migration = &m
		return nil
	}
	if err := m.CheckImage(r.Machine.Image); err != nil {
		return err
	}
	r.Migration = &m
	r.Machine.Type = m.To
	if d := w.declarations[w.owners[object]]; d != nil && !d.gone {
		// The map belongs to the stored record, so a copy is changed.
		machines := maps.Clone(d.record.Document.Machines)
		declared := machines[name]
		declared.Type = m.To
		machines[name] = declared
		d.record.Document.Machines = machines
	}
	return nil
}

// retype gives the machines of documents that were written before the machines'
// migrations the present type.
func (w *State) retype(docs []Document) {
	for _, doc := range docs {
		for name, m := range doc.Declaration.Machines {
			if o := w.objects[spec.KindMachine+"/"+name]; o != nil && o.life == state.Alive {
				m.Type = o.machine().TypeFor(m.Type)
				doc.Declaration.Machines[name] = m
			}
		}
	}
}
