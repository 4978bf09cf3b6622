package api

import (
	"maps"
	"slices"
	"strings"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// remove removes an object (KIND/NAME) from the declared state. Removing an
// object that is already being removed is success.
func (w *declaredState) remove(object string) error {
	id, err := parseObject(object)
	if err != nil {
		return err
	}
	switch id.Kind {
	case spec.KindDeclaration:
		return w.removeDeclaration(id.Name)
	case spec.KindMachine:
		return w.removeMachine(id.Name, false)
	case spec.KindNetwork, spec.KindVolume, spec.KindFilesystem:
		return w.removeDependency(id)
	default:
		return fault.New(fault.Invalid, "cannot delete %s: declarations, machines, networks, volumes and filesystems can be deleted", raw.Clip(object, 128))
	}
}

// removeOrder is the order in which kinds are removed: users first.
var removeOrder = []string{spec.KindDeclaration, spec.KindMachine, spec.KindFilesystem, spec.KindVolume, spec.KindNetwork}

// removeAll removes objects and returns their outcomes in the same order. It
// removes users first, so the order of objects does not matter.
func (w *declaredState) removeAll(objects []string) []client.Outcome {
	places := make([]int, len(objects))
	for n := range objects {
		places[n] = n
	}
	rank := func(n int) int {
		kind, _, _ := strings.Cut(objects[n], "/")
		return slices.Index(removeOrder, kind)
	}
	slices.SortStableFunc(places, func(a, b int) int { return rank(a) - rank(b) })
	outcomes := make([]client.Outcome, len(objects))
	for _, n := range places {
		outcomes[n] = outcomeOf(objects[n], w.remove(objects[n]))
	}
	return outcomes
}

// removeDeclaration removes a declaration with all its objects. A declaration
// without a document is found by its objects' records.
func (w *declaredState) removeDeclaration(name string) error {
	d, found := w.declarations[name], false
	if d != nil {
		if err := fromFile("declaration/"+name, d.record.Source); err != nil {
			return err
		}
		d.gone = true
	}
	w.mergeAlone()
	going := w.ofDeclarations(nil, []string{name})
	maps.DeleteFunc(going, func(object string, _ bool) bool {
		found = true
		return w.owners[object] != "" || w.lifeOf(object) != state.Alive
	})
	for object := range going {
		users, err := w.usersOf(object, going)
		if err != nil {
			return err
		}
		if len(users) > 0 {
			if d != nil {
				d.gone = false
			}
			return fault.New(fault.Conflict, "cannot remove %s of the declaration %s: it is used by %s", object, name, fault.List(users, ", "))
		}
	}
	for object := range going {
		w.send(object)
	}
	if d == nil && !found {
		return fault.New(fault.NotFound, "declaration/%s is not there", raw.Clip(name, 64))
	}
	return nil
}

// removeMachine removes a machine from the declared state and from its
// document. A declaration that becomes empty is removed, too. With release, the
// machine's instance survives.
func (w *declaredState) removeMachine(name string, release bool) error {
	k := w.machines[name]
	if k == nil {
		return fault.New(fault.NotFound, "machine/%s is not there", raw.Clip(name, 64))
	}
	if k.life != state.Alive {
		if release && !k.record.Released {
			return fault.New(fault.NotReady, "cannot release machine/%s: it is being removed", name)
		}
		return nil
	}
	if err := w.strike(spec.KindMachine + "/" + name); err != nil {
		return err
	}
	k.life = state.Dying
	k.record.Released = release || k.record.Machine.Retain
	return nil
}

// strike removes an object from the applied documents. A declaration that
// becomes empty is removed, too.
func (w *declaredState) strike(object string) error {
	if err := w.filed(object); err != nil {
		return err
	}
	for _, d := range w.declarations {
		if !d.gone && documents.Declares(d.record.Document, object) {
			documents.Strike(d.record.Document, object)
			d.gone = d.record.Document.Len() == 0
		}
	}
	return nil
}

// filed refuses to remove an object that a file declares.
func (w *declaredState) filed(object string) error {
	for _, d := range w.declarations {
		if !d.gone && documents.Declares(d.record.Document, object) {
			if err := fromFile(object, d.record.Source); err != nil {
				return err
			}
		}
	}
	return nil
}

// fromFile refuses to remove an object of a file: the next reading of the file
// would restore it.
func fromFile(object, source string) error {
	if !isFile(source) {
		return nil
	}
	return fault.New(fault.Conflict, "cannot remove %s: it is declared in %s; edit or remove that file", object, source)
}

// setPower requests a power state.
func (w *declaredState) setPower(name, action string) error {
	k, err := w.alive(name)
	if err != nil {
		return err
	}
	declared := k.record.Machine.Running == nil || *k.record.Machine.Running
	wanted := declared
	if k.record.PowerOverride != nil {
		wanted = *k.record.PowerOverride
	}
	if action != "stop" && k.frozen() {
		k.record.RetryRequest++ // resumes the instance
	}
	switch action {
	case "start", "stop":
		want := action == "start"
		k.record.PowerOverride = nil
		if want != declared || want && k.notAutostarted() {
			k.record.PowerOverride = &want
		}
	case "restart":
		if !wanted || k.notAutostarted() {
			return fault.New(fault.Conflict, "cannot restart machine/%s: it is stopped by request or declaration; start it", name)
		}
		k.record.RestartRequest++
	default:
		return fault.New(fault.Invalid, "cannot %s a machine: start, stop or restart it", raw.Clip(action, 16))
	}
	return nil
}

// retry requests a new attempt at a machine, even if it is being removed.
func (w *declaredState) retry(name string) error {
	k := w.machines[name]
	if k == nil {
		return fault.New(fault.NotFound, "machine/%s is not there", name)
	}
	k.record.RetryRequest++
	return nil
}

func (w *declaredState) alive(name string) (*machineObject, error) {
	k := w.machines[name]
	if k == nil {
		return nil, fault.New(fault.NotFound, "machine/%s is not there", name)
	}
	if k.life != state.Alive {
		return nil, fault.New(fault.NotReady, "machine/%s is being removed", name)
	}
	return k, nil
}

// adopt takes an existing instance under declaration. A declared machine of
// that name without an instance gets it; otherwise the instance gets a
// declaration with its own name.
func (w *declaredState) adopt(a Adoptable) error {
	if k := w.machines[a.Name]; k != nil {
		if k.life != state.Alive {
			return fault.New(fault.NotReady, "cannot adopt %s: machine/%s is still being removed", a.Name, a.Name)
		}
		if k.record.Machine.Type != a.Machine.Type {
			return fault.New(fault.Conflict, "cannot adopt %s/%s: machine/%s is declared of type %s",
				a.Machine.Type, a.Name, a.Name, k.record.Machine.Type)
		}
		// A machine with an instance was created by hostler or adopted before.
		var st spec.MachineStatus
		if err := decodeObject(*k.before, nil, &st); err != nil {
			return err
		}
		if st.Instance == nil {
			// The consent was given before this instance was known.
			k.record.Adopted, k.record.Allow = true, nil
		}
		return nil
	}
	if d := w.declarations[a.Name]; d != nil {
		return fault.New(fault.Conflict, "cannot adopt %s/%s: there is a declaration %s without that machine; declare it there first",
			a.Machine.Type, a.Name, a.Name)
	}
	doc := document{name: a.Name, source: spec.SourceApply, decl: spec.Declaration{
		Version: spec.Version, Name: a.Name, Machines: map[string]spec.Machine{a.Name: a.Machine},
	}}
	w.enforce(documents.Merge(w.request([]document{doc})), []document{doc})
	if _, err := w.updateRecords([]document{doc}, removal{partial: true}); err != nil {
		return err
	}
	w.machines[a.Name].record.Adopted, w.machines[a.Name].uid = true, a.UID
	return nil
}

// parseObject parses KIND/NAME; names may hold slashes, e.g. those of images.
func parseObject(s string) (state.ID, error) {
	kind, name, ok := strings.Cut(s, "/")
	if !ok || kind == "" || name == "" || len(s) > 256 {
		return state.ID{}, fault.New(fault.Invalid, "cannot read %q: objects are named KIND/NAME, like machine/web", raw.Clip(s, 128))
	}
	return state.ID{Kind: kind, Name: name}, nil
}

// outcomeOf turns an error into an element of a bulk answer.
func outcomeOf(object string, err error) client.Outcome {
	o := client.Outcome{Object: object}
	if err != nil {
		o.Error, o.Kind = err.Error(), fault.KindOf(err)
	}
	return o
}

// removeDependency removes a network, volume or filesystem from the declared
// state and from its document, like removeMachine. It must have no users.
func (w *declaredState) removeDependency(id state.ID) error {
	g := w.dependencies[id]
	if g == nil {
		return fault.New(fault.NotFound, "%s/%s is not there", id.Kind, raw.Clip(id.Name, 64))
	}
	if g.life != state.Alive {
		return nil
	}
	object := id.Kind + "/" + id.Name
	if err := w.filed(object); err != nil {
		return err
	}
	users, err := w.usersOf(object, nil)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		which := "that"
		if len(users) > 1 {
			which = "those"
		}
		return fault.New(fault.Conflict, "cannot remove %s: it is used by %s of the declaration %s; delete %s too, or apply the declaration without the use of it",
			object, fault.List(users, ", "), g.declaration, which)
	}
	if err := w.strike(object); err != nil {
		return err
	}
	g.life = state.Dying
	return nil
}
