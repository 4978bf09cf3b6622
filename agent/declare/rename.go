package declare

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// renames maps the new names of machines in a declaration to their former
// names. It leaves out machines that do not exist under the former name.
func (w *State) renames(d spec.Declaration) map[string]string {
	all := map[string]string{}
	for name, m := range d.Machines {
		previous := w.objects[spec.KindMachine+"/"+m.RenamedFrom]
		if m.RenamedFrom != "" && w.objects[spec.KindMachine+"/"+name] == nil && previous != nil && previous.life == state.Alive {
			all[name] = m.RenamedFrom
		}
	}
	return all
}

// renamable reports whether a machine can be renamed.
func renamable(m spec.Machine) bool { return len(m.Networks)+len(m.Storage)+len(m.Publish) == 0 }

// rename renames the machines' records. A machine keeps its uid, its status and
// its instance, and the instance keeps its name.
func (w *State) rename() {
	for _, d := range w.declarations {
		if d.gone {
			continue
		}
		renames := w.renames(d.record.Document)
		for _, name := range slices.Sorted(maps.Keys(renames)) {
			former, object := spec.KindMachine+"/"+renames[name], spec.KindMachine+"/"+name
			o := w.objects[former]
			if o == nil || o.before == nil || w.owners[former] != "" || w.owners[object] == "" || w.making[o.before.UID] || !renamable(o.machine().Machine) {
				continue
			}
			renamed := newObject(ID(object))
			record := *o.machine()
			record.InstanceName, record.Held = cmp.Or(record.InstanceName, o.Name), ""
			if record.InstanceName == name {
				record.InstanceName = ""
			}
			renamed.now, renamed.uid, renamed.renamed = &record, o.before.UID, o.before
			delete(w.objects, former)
			w.objects[object], w.users = renamed, nil
		}
	}
}

// statusAfterRename returns the status of a machine for its new record, whose
// generations begin again. Otherwise a failed machine would wait for as many changes
// as its former record had.
func statusAfterRename(status json.RawMessage) json.RawMessage {
	var s spec.MachineStatus
	if json.Unmarshal(status, &s) != nil {
		return status
	}
	s.ObservedGeneration = 0
	return spec.Encode(s)
}

// newcomers maps the text of each new machine's declaration to the machine's
// name. It leaves out renamed machines. If several declarations are equal, the
// first name counts.
func (w *State) newcomers() map[string]string {
	all := map[string]string{}
	for _, o := range w.objects {
		m := o.machine()
		if m == nil || o.before != nil || m.Machine.RenamedFrom != "" {
			continue
		}
		text := string(spec.Encode(m.Machine))
		if other, alike := all[text]; !alike || o.Name < other {
			all[text] = o.Name
		}
	}
	return all
}

// looksRenamed returns the name of a new machine with the same declaration as a
// held machine, or "" if there is none.
func (w *State) looksRenamed(object string, newcomers map[string]string) string {
	m := w.objects[object].machine()
	if m == nil || !renamable(m.Machine) {
		return ""
	}
	return newcomers[string(spec.Encode(m.Machine))]
}
