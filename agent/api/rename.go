package api

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// renames maps the new names in a declaration to the former names of existing
// machines.
func (w *declaredState) renames(d spec.Declaration) map[string]string {
	all := map[string]string{}
	for name, m := range d.Machines {
		previous := w.machines[m.RenamedFrom]
		if m.RenamedFrom != "" && w.machines[name] == nil && previous != nil && previous.life == state.Alive {
			all[name] = m.RenamedFrom
		}
	}
	return all
}

// checkRenames refuses to rename a machine to another type, and a machine with
// networks, storage or published ports: their assignments use the machine's
// name.
func (w *declaredState) checkRenames(doc document) error {
	var wrong []string
	renames := w.renames(doc.decl)
	for _, name := range slices.Sorted(maps.Keys(renames)) {
		previous := renames[name]
		was, m := w.machines[previous].record.Machine, doc.decl.Machines[name]
		switch {
		case w.making[w.machines[previous].before.UID]:
			return fault.New(fault.NotReady, "cannot apply %s: machine/%s is still being made; rename it when it is there", doc.name, previous)
		case was.Type != m.Type:
			wrong = append(wrong, fmt.Sprintf("machine/%s is of type %s and cannot become machine/%s of type %s", previous, was.Type, name, m.Type))
		case !renamable(was):
			wrong = append(wrong, fmt.Sprintf("machine/%s has networks, storage or published ports and cannot be renamed to %s; keep its name", previous, name))
		}
	}
	if len(wrong) > 0 {
		return fault.New(fault.Conflict, "cannot apply %s: %s", doc.name, fault.List(wrong, "; "))
	}
	return nil
}

// renamable reports whether a machine can be renamed.
func renamable(m spec.Machine) bool { return len(m.Networks)+len(m.Storage)+len(m.Publish) == 0 }

// rename renames the machines' records. A machine keeps its uid, its status and
// its instance with its instance's name.
func (w *declaredState) rename() {
	for _, d := range w.declarations {
		if d.gone {
			continue
		}
		renames := w.renames(d.record.Document)
		for _, name := range slices.Sorted(maps.Keys(renames)) {
			previous := renames[name]
			k := w.machines[previous]
			object := spec.KindMachine + "/"
			if k.before == nil || w.owners[object+previous] != "" || w.owners[object+name] == "" || w.making[k.before.UID] || !renamable(k.record.Machine) {
				continue
			}
			record := k.record
			record.InstanceName, record.Held = cmp.Or(record.InstanceName, previous), ""
			if record.InstanceName == name {
				record.InstanceName = ""
			}
			delete(w.machines, previous)
			w.users = nil
			w.machines[name] = &machineObject{record: record, life: state.Alive, uid: k.before.UID, renamed: k.before}
		}
	}
}
