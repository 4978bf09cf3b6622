package declare

import (
	"maps"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// removeOrder is the order in which kinds are removed. Objects that use others
// come first.
var removeOrder = []string{spec.KindDeclaration, spec.KindMachine, spec.KindFilesystem, spec.KindVolume, spec.KindNetwork}

// Delete removes objects and declarations. errs has an entry for each of them:
// nil, or the reason why it cannot be removed. The order of objects does not
// matter, because those that use others are removed first.
func (w *State) Delete(objects []string, unread Unread) (errs []error) {
	places := make([]int, len(objects))
	for n := range objects {
		places[n] = n
	}
	rank := func(n int) int { return slices.Index(removeOrder, ID(objects[n]).Kind) }
	slices.SortStableFunc(places, func(a, b int) int { return rank(a) - rank(b) })
	errs = make([]error, len(objects))
	for _, n := range places {
		errs[n] = w.remove(objects[n])
	}
	w.mergeAlone()
	w.updateRecords(nil, removal{partial: unread.Reason != ""})
	return errs
}

// Release removes a machine from the declared state and keeps its instance.
func (w *State) Release(machine string, unread Unread) error {
	if err := w.removeObject(spec.KindMachine+"/"+machine, true); err != nil {
		return err
	}
	w.mergeAlone()
	w.updateRecords(nil, removal{partial: unread.Reason != ""})
	return nil
}

// remove removes an object from the declared state. Removing an object that is
// already being removed is success.
func (w *State) remove(object string) error {
	id, err := ParseObject(object)
	if err != nil {
		return err
	}
	if id.Kind == spec.KindDeclaration {
		return w.removeDeclaration(id.Name)
	}
	if _, declared := kinds[id.Kind]; !declared {
		return fault.New(fault.Invalid, "cannot delete %s: declarations, machines, networks, volumes and filesystems can be deleted", fault.Clip(object, 128))
	}
	return w.removeObject(object, false)
}

// removeObject removes an object without users from the declared state and from
// its document. If release is true, its instance survives.
func (w *State) removeObject(object string, release bool) error {
	o, err := w.object(object)
	if err != nil {
		return err
	}
	if o.life != state.Alive {
		if release && !o.head().Released {
			return fault.New(fault.NotReady, "cannot release %s: it is being removed", object)
		}
		return nil
	}
	if err := w.filed(object); err != nil {
		return err
	}
	if users := w.usersOf(object, nil); len(users) > 0 {
		which := "that"
		if len(users) > 1 {
			which = "those"
		}
		return fault.New(fault.Conflict, "cannot remove %s: it is used by %s of the declaration %s; delete %s too, or apply the declaration without the use of it",
			object, fault.List(users, ", "), o.head().Declaration, which)
	}
	for _, d := range w.declarations {
		if !d.gone && documents.Declares(d.record.Document, object) {
			documents.Strike(d.record.Document, object)
			d.gone = d.record.Document.Len() == 0
		}
	}
	w.send(object, release)
	return nil
}

// removeDeclaration removes a declaration with all its objects. A declaration
// without a document is found by its objects' records.
func (w *State) removeDeclaration(name string) error {
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
		return w.owners[object] != "" || w.isRemoved(object)
	})
	for object := range going {
		if users := w.usersOf(object, going); len(users) > 0 {
			if d != nil {
				d.gone = false
			}
			return fault.New(fault.Conflict, "cannot remove %s of the declaration %s: it is used by %s", object, name, fault.List(users, ", "))
		}
	}
	for object := range going {
		w.send(object, false)
	}
	if d == nil && !found {
		return notThere("declaration/" + name)
	}
	return nil
}

// filed refuses to remove an object that a file declares.
func (w *State) filed(object string) error {
	for _, d := range w.declarations {
		if !d.gone && documents.Declares(d.record.Document, object) {
			if err := fromFile(object, d.record.Source); err != nil {
				return err
			}
		}
	}
	return nil
}

// fromFile refuses to remove an object of a file, because the next reading of
// the file would restore the object.
func fromFile(object, source string) error {
	if !isFile(source) {
		return nil
	}
	return fault.New(fault.Conflict, "cannot remove %s: it is declared in %s; edit or remove that file", object, source)
}

// ParseObject parses KIND/NAME. The name may hold slashes, e.g. that of an
// image.
func ParseObject(s string) (state.ID, error) {
	kind, name, ok := strings.Cut(s, "/")
	if !ok || kind == "" || name == "" || len(s) > 256 {
		return state.ID{}, fault.New(fault.Invalid, "cannot read %q: objects are named KIND/NAME, like machine/web", fault.Clip(s, 128))
	}
	return state.ID{Kind: kind, Name: name}, nil
}

// object returns an object, or an error of the kind fault.NotFound.
func (w *State) object(name string) (*object, error) {
	if o := w.objects[name]; o != nil {
		return o, nil
	}
	return nil, notThere(name)
}

func notThere(object string) error {
	return fault.New(fault.NotFound, "%s is not there", fault.Clip(object, 128))
}
