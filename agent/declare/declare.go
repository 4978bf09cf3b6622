// Package declare decides about documents: which objects they declare, which
// changes of the records follow, and which changes are refused. It is pure: from
// the stored objects, the documents and the users' requests it computes writes,
// refusals and held steps. The caller reads the store, asks the planner and
// commits.
package declare

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// Planned is a machine, network, volume or filesystem in its current and its
// planned state.
type Planned struct {
	// Before is nil for a new object.
	Before *state.Object
	// After has the planned spec, life and generation. A new object has an empty
	// UID; an unchanged object equals Before.
	After state.Object
}

// State is the declared state as read from the store, with the changes that
// were made to it since. Objects are named KIND/NAME.
type State struct {
	declarations map[string]*declaration
	objects      map[string]*object
	// owners maps each object that a document declares to the name of the
	// declaration.
	owners map[string]string
	// users maps each object to the objects that refer to it. If a record changes,
	// users becomes nil and is computed again; see usersOf().
	users map[string][]string
	// making holds the uids for which an instance may be in creation.
	making map[string]bool
	// obeyed is true if removals need no consent (hostler.yaml, "removals: obey").
	obeyed bool
	// most is the maximum number of machines of the host. began is the number of
	// machines that were read from the store.
	most, began int
	// settings are the records of the host and of container types, by id. No
	// document declares them.
	settings map[state.ID]*setting
	// again returns a new State from the same stored objects, without the changes
	// made to this State.
	again func() (*State, error)
}

// declaration is a stored declaration; gone marks it for removal.
type declaration struct {
	object state.Object // Revision 0 means new
	record spec.DeclarationRecord
	gone   bool
}

// setting is a stored record without a declaration.
type setting struct {
	object state.Object
	record any // nil if not changed
}

// Kinds are the kinds of objects that New() accepts.
var Kinds = append(slices.Sorted(maps.Keys(kinds)), spec.KindDeclaration, spec.KindHost, spec.KindContainerType)

// New returns the state of the stored objects, which are all those of Kinds.
// intents are the open intents of the journal.
func New(objects []state.Object, intents []state.Intent) (*State, error) {
	w := &State{
		declarations: map[string]*declaration{}, objects: map[string]*object{}, making: map[string]bool{}, settings: map[state.ID]*setting{},
		again: func() (*State, error) { return New(objects, intents) },
	}
	for _, i := range intents {
		w.making[i.UID] = true
	}
	for _, o := range objects {
		var err error
		switch o.Kind {
		case spec.KindDeclaration:
			d := &declaration{object: o}
			w.declarations[o.Name], err = d, o.Decode(&d.record, nil)
		case spec.KindHost, spec.KindContainerType:
			w.settings[o.ID] = &setting{object: o}
		default:
			w.objects[o.Kind+"/"+o.Name], err = readObject(o)
		}
		if err != nil {
			return nil, err
		}
	}
	var host spec.HostRecord
	if err := w.setting(hostID).read(&host); err != nil {
		return nil, err
	}
	w.obeyed, w.most = host.Config.Removals == spec.RemovalsObey, host.Config.MaxMachines
	w.mergeAlone()
	w.began = w.count()
	return w, nil
}

// ID returns the id of an object KIND/NAME.
func ID(object string) state.ID {
	kind, name, _ := strings.Cut(object, "/")
	return state.ID{Kind: kind, Name: name}
}

// isFile reports whether a declaration's source is a file of conf.d. Such a
// file owns its objects.
func isFile(source string) bool {
	return source != spec.SourceApply && source != spec.SourceStamps
}

// sorted lists the objects. Networks and storage come first, then machines;
// each group is sorted by name.
func (w *State) sorted() []*object {
	names := slices.Sorted(maps.Keys(w.objects))
	slices.SortStableFunc(names, func(a, b string) int { return isMachine(a) - isMachine(b) })
	all := make([]*object, len(names))
	for i, name := range names {
		all[i] = w.objects[name]
	}
	return all
}

func isMachine(object string) int {
	if strings.HasPrefix(object, spec.KindMachine+"/") {
		return 1
	}
	return 0
}

// Writes returns the writes for the changed objects.
func (w *State) Writes() []state.Write {
	var all []state.Write
	for _, name := range slices.Sorted(maps.Keys(w.declarations)) {
		d := w.declarations[name]
		wr := state.Write{ID: state.ID{Kind: spec.KindDeclaration, Name: name}, Revision: d.object.Revision, UID: d.object.UID}
		switch {
		case d.gone && d.object.Revision == 0, !d.gone && !d.changed():
			continue
		case d.gone:
			wr.Delete = true
		default:
			wr.Spec = spec.Encode(d.record)
		}
		all = append(all, wr)
	}
	for _, o := range w.sorted() {
		all = append(all, o.writes()...)
	}
	for id, s := range w.settings {
		if s.record != nil {
			all = append(all, state.Write{ID: id, Revision: s.object.Revision, UID: s.object.UID, Spec: spec.Encode(s.record)})
		}
	}
	return all
}

// changed reports whether the declaration differs from its stored text.
func (d *declaration) changed() bool {
	var was spec.DeclarationRecord
	return d.object.Revision == 0 || json.Unmarshal(d.object.Spec, &was) != nil || !same(was, d.record)
}

// Planned returns all objects for the planner: networks and storage, then
// machines.
func (w *State) Planned() []Planned {
	var all []Planned
	for _, o := range w.sorted() {
		all = append(all, o.planned())
	}
	return all
}

// count counts the machines that are not being removed.
func (w *State) count() int {
	n := 0
	for _, o := range w.objects {
		if o.Kind == spec.KindMachine && o.life == state.Alive {
			n++
		}
	}
	return n
}
