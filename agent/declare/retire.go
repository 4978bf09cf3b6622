package declare

import (
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
)

// This file updates the records to match the documents in force: it creates and
// changes the objects that they declare, and decides about each object that no
// document declares any more.

// removal says which objects may be removed.
type removal struct {
	// consent holds the objects whose removal was allowed.
	consent map[string]bool
	// partial is true if a document cannot be read or put in force. That document
	// may declare an object that seems undeclared, so nothing is removed.
	partial bool
	// lost is true if conf.d as a whole is gone or on another file system than
	// before.
	lost bool
}

// updateRecords makes the records match the documents in force. docs are the
// documents being applied. It returns the objects to remove now, sorted.
func (w *State) updateRecords(docs []Document, r removal) []string {
	w.rename()
	byHand := map[string]Document{}
	for _, doc := range docs {
		byHand[doc.Name] = doc
	}
	for _, name := range slices.Sorted(maps.Keys(w.declarations)) {
		d := w.declarations[name]
		if d.gone {
			continue
		}
		applied, hand := byHand[name]
		doc := Document{Document: documents.Document{Name: name}, Source: d.record.Source, Confirm: applied.Confirm}
		for kind, k := range kinds {
			for object, wanted := range k.declared(d.record.Document) {
				if id := (state.ID{Kind: kind, Name: object}); w.owners[kind+"/"+object] == name {
					w.declare(id, wanted, doc, hand)
				}
			}
		}
	}
	return w.retire(r)
}

// declare creates or changes an object that a document declares. byHand is true
// if the document is being applied, and false if it is in force already.
func (w *State) declare(id state.ID, wanted record, doc Document, byHand bool) {
	object := id.Kind + "/" + id.Name
	o := w.objects[object]
	w.users = nil
	if o == nil {
		o = newObject(id)
		w.objects[object] = o
	}
	if o.life != state.Alive {
		return // the object is created again after its removal
	}
	changed := o.was == nil || !o.alike(o.was, wanted)
	o.take(o.now, wanted)
	h := o.head()
	h.Declaration, h.Held = doc.Name, ""
	if changed {
		// Consent was given for the former declaration of the object.
		h.Allow = nil
	}
	switch r := o.now.(type) {
	case *spec.NetworkRecord:
		if changed {
			r.Confirm = doc.Confirm
		}
	case *spec.MachineRecord:
		if changed || byHand {
			// An unchanged file does not get here. The agent reads the files again at
			// every start, and that must not start a machine that the user stopped.
			r.PowerOverride = nil
			if o.notAutostarted() && r.Machine.WantsRunning() {
				r.PowerOverride = new(true)
			}
		}
		if doc.Source != spec.SourceStamps {
			r.GuestLost = false
		}
	}
}

// undeclared returns the existing objects that no document declares, with their
// holds. It leaves out objects whose declaration was lost with a store, because
// they stay until that declaration is applied again.
func (w *State) undeclared() map[string]spec.Hold {
	all := map[string]spec.Hold{}
	for name, o := range w.objects {
		h := o.head()
		_, known := w.declarations[h.Declaration]
		if o.life == state.Alive && w.owners[name] == "" && (known || h.Held != "") {
			all[name] = h.Held
		}
	}
	return all
}

// retire removes the undeclared objects that may go and holds the others. It
// returns the removed objects, sorted.
func (w *State) retire(r removal) []string {
	undeclared := w.undeclared()
	going := map[string]bool{}
	for object, held := range undeclared {
		switch {
		case r.partial:
		case r.consent[object]:
			going[object] = true
		case r.lost || held == spec.HoldLost:
		case w.needsNoConsent(object):
			going[object] = true
		}
	}
	// An object stays if another object that stays uses it.
	for changed := true; changed; {
		changed = false
		for object := range going {
			if len(w.usersOf(object, going)) > 0 {
				delete(going, object)
				changed = true
			}
		}
	}
	for object, held := range undeclared {
		switch {
		case going[object]:
			w.send(object, false)
		case held == spec.HoldLost || r.lost:
			w.objects[object].head().Held = spec.HoldLost
		default:
			w.objects[object].head().Held = spec.HoldRemoval
		}
	}
	return slices.Sorted(maps.Keys(going))
}

// send marks an object for removal. If release is true, its instance or data
// survives.
func (w *State) send(object string, release bool) {
	o := w.objects[object]
	o.life = state.Dying
	o.head().Released = o.head().Released || release || o.retains(o.now)
}

// orphaned reports whether the declaration of a held object is gone. This
// happens if a file disappears while another file cannot be read. If conf.d is
// then empty, its file system may be unmounted.
func (w *State) orphaned() bool {
	for _, o := range w.objects {
		if o.life == state.Alive && o.head().Held != "" && w.declarations[o.head().Declaration] == nil {
			return true
		}
	}
	return false
}

// needsNoConsent reports whether an undeclared object is removed without the
// user's consent.
func (w *State) needsNoConsent(object string) bool {
	return w.hasNoData(object) || w.retained(object) || w.obeyed
}

// waiting reports whether an object is held although its removal needs no
// consent. Such an object waits for a complete reading of conf.d.
func (w *State) waiting() bool {
	for object, held := range w.undeclared() {
		if held == spec.HoldRemoval && w.needsNoConsent(object) {
			return true
		}
	}
	return false
}

func (w *State) hasNoData(object string) bool {
	o := w.objects[object]
	return o.hasNoData(o.before != nil && w.making[o.before.UID])
}

// retained reports whether the removal of an object keeps its instance or its
// data.
func (w *State) retained(object string) bool {
	o := w.objects[object]
	return o.retains(o.now)
}

// Held lists the held objects, sorted.
func (w *State) Held() []string {
	var all []string
	for object, h := range w.undeclared() {
		if h != "" {
			all = append(all, object)
		}
	}
	slices.Sort(all)
	return all
}

// NewlyHeld lists the objects that were not held before this change, sorted.
func (w *State) NewlyHeld() (objects []string) {
	for name, o := range w.objects {
		if o.life == state.Alive && o.head().Held != "" && (o.was == nil || o.was.Head().Held == "") {
			objects = append(objects, name)
		}
	}
	slices.Sort(objects)
	return objects
}

// isRemoved reports whether an object is being removed.
func (w *State) isRemoved(object string) bool {
	o := w.objects[object]
	return o != nil && o.life != state.Alive
}

// Awaits reports whether the documents declare an object that is being removed.
// Such an object is created again afterwards.
func (w *State) Awaits() bool {
	for object := range w.owners {
		if w.isRemoved(object) {
			return true
		}
	}
	return false
}

// Awaited lists the documents' objects that are being removed and will be
// created again.
func (w *State) Awaited(docs []Document) (objects []string) {
	for _, doc := range docs {
		for _, object := range doc.Declaration.Objects() {
			if w.isRemoved(object) {
				objects = append(objects, object)
			}
		}
	}
	return objects
}
