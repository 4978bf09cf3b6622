package api

import (
	"encoding/json"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
)

// This file updates the records to match the documents in force: it creates and
// changes the objects that they declare, and decides about each object that no
// document declares any more. It is pure.

// removal says which objects may be removed.
type removal struct {
	// consent holds the objects (KIND/NAME) whose removal was allowed.
	consent map[string]bool
	// partial: a document cannot be read or put in force, so an apparently
	// undeclared object may be declared in it. Nothing is removed.
	partial bool
	// lost: conf.d as a whole is gone or on another file system than before.
	lost bool
}

// updateRecords makes the records match the documents in force. docs are the
// documents being applied. It returns the objects to remove now, sorted.
func (w *declaredState) updateRecords(docs []document, r removal) ([]string, error) {
	w.rename()
	byHand := map[string]document{}
	for _, doc := range docs {
		byHand[doc.name] = doc
	}
	for _, name := range slices.Sorted(maps.Keys(w.declarations)) {
		d := w.declarations[name]
		if d.gone {
			continue
		}
		applied, hand := byHand[name]
		doc := document{name: name, source: d.record.Source, decl: d.record.Document, confirm: applied.confirm}
		if err := w.updateDocumentRecords(doc, hand); err != nil {
			return nil, err
		}
	}
	return w.retire(r)
}

// updateDocumentRecords creates or changes the objects that a document owns.
func (w *declaredState) updateDocumentRecords(doc document, byHand bool) error {
	wanted := dependenciesOf(doc)
	for _, id := range sortedIDs(wanted) {
		if w.owners[id.Kind+"/"+id.Name] != doc.name {
			continue
		}
		if err := w.declareDependency(id, wanted[id], doc.name); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(doc.decl.Machines)) {
		if w.owners[spec.KindMachine+"/"+name] == doc.name {
			w.declareMachine(name, doc.decl.Machines[name], doc, byHand)
		}
	}
	return nil
}

// undeclared returns the existing objects that no document declares, with their
// holds. It leaves out objects whose declaration was lost with a store: they
// stay until that declaration is applied again.
func (w *declaredState) undeclared() map[string]spec.Hold {
	all := map[string]spec.Hold{}
	note := func(object, declaration string, held spec.Hold) {
		_, known := w.declarations[declaration]
		if w.owners[object] == "" && (known || held != "") {
			all[object] = held
		}
	}
	for name, k := range w.machines {
		if k.life == state.Alive {
			note(spec.KindMachine+"/"+name, k.record.Declaration, k.record.Held)
		}
	}
	for id, g := range w.dependencies {
		if g.life == state.Alive {
			note(id.Kind+"/"+id.Name, g.declaration, g.held)
		}
	}
	return all
}

// retire removes the undeclared objects that may go and holds the others.
func (w *declaredState) retire(r removal) ([]string, error) {
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
	// An object stays if an object that stays uses it.
	for changed := true; changed; {
		changed = false
		for object := range going {
			users, err := w.usersOf(object, going)
			if err != nil {
				return nil, err
			}
			if len(users) > 0 {
				delete(going, object)
				changed = true
			}
		}
	}
	for object, held := range undeclared {
		switch {
		case going[object]:
			w.send(object)
		case held == spec.HoldLost || r.lost:
			if err := w.hold(object, spec.HoldLost); err != nil {
				return nil, err
			}
		default:
			if err := w.hold(object, spec.HoldRemoval); err != nil {
				return nil, err
			}
		}
	}
	return orEmpty(slices.Sorted(maps.Keys(going))), nil
}

// orphaned reports whether an object is held whose declaration is gone. If
// conf.d is empty, its file system may be unmounted: a file that was gone while
// another file was unreadable left its objects held and its declaration
// removed.
func (w *declaredState) orphaned() bool {
	orphan := func(life state.Life, held spec.Hold, declaration string) bool {
		return life == state.Alive && held != "" && w.declarations[declaration] == nil
	}
	for _, k := range w.machines {
		if orphan(k.life, k.record.Held, k.record.Declaration) {
			return true
		}
	}
	for _, g := range w.dependencies {
		if orphan(g.life, g.held, g.declaration) {
			return true
		}
	}
	return false
}

// needsNoConsent reports whether an undeclared object is removed unasked.
func (w *declaredState) needsNoConsent(object string) bool {
	return w.hasNoData(object) || w.retained(object) || w.obeyed
}

// waiting reports whether an object is held that needs no consent: it waits for
// a complete reading of conf.d.
func (w *declaredState) waiting() bool {
	for object, held := range w.undeclared() {
		if held == spec.HoldRemoval && w.needsNoConsent(object) {
			return true
		}
	}
	return false
}

// lifeOf returns the life of an object, "" if it does not exist.
func (w *declaredState) lifeOf(object string) state.Life {
	id := idOf(object)
	if k := w.machines[id.Name]; id.Kind == spec.KindMachine && k != nil {
		return k.life
	}
	if g := w.dependencies[id]; g != nil {
		return g.life
	}
	return ""
}

// send marks an object for removal.
func (w *declaredState) send(object string) {
	id := idOf(object)
	if id.Kind != spec.KindMachine {
		w.dependencies[id].life = state.Dying
		return
	}
	k := w.machines[id.Name]
	k.life = state.Dying
	k.record.Released = k.record.Released || k.record.Machine.Retain
}

// hold keeps an object that no document declares.
func (w *declaredState) hold(object string, h spec.Hold) error {
	id := idOf(object)
	if id.Kind == spec.KindMachine {
		w.machines[id.Name].record.Held = h
		return nil
	}
	return w.dependencies[id].hold(id, h)
}

// hasNoData reports that an object never had data of its own, so that its
// removal loses nothing.
func (w *declaredState) hasNoData(object string) bool {
	id := idOf(object)
	if id.Kind == spec.KindMachine {
		k := w.machines[id.Name]
		if k.before == nil {
			return true
		}
		status, known := k.status()
		seen := len(k.before.Status) > 0 && (!known || status.Instance != nil)
		return !seen && !k.record.Adopted && !w.making[k.before.UID]
	}
	g := w.dependencies[id]
	if id.Kind == spec.KindNetwork || g.before == nil {
		return true
	}
	var status spec.StorageStatus
	if len(g.before.Status) > 0 && json.Unmarshal(g.before.Status, &status) != nil {
		return false
	}
	var r spec.FilesystemRecord // volumes have the same field
	if json.Unmarshal(g.now, &r) == nil && r.Filesystem.Provider == "tmpfs" {
		return true
	}
	return !status.Created && !r.Restored && !w.making[g.before.UID]
}

// retained reports that the removal of an object keeps its instance or its
// data.
func (w *declaredState) retained(object string) bool {
	id := idOf(object)
	if id.Kind == spec.KindMachine {
		return w.machines[id.Name].record.Machine.Retain
	}
	var r struct {
		Volume     spec.Volume     `json:"volume"`
		Filesystem spec.Filesystem `json:"filesystem"`
	}
	return json.Unmarshal(w.dependencies[id].now, &r) == nil && (r.Volume.Retain || r.Filesystem.Retain)
}

// held lists the held objects, sorted.
func (w *declaredState) held() []string {
	var all []string
	for object, h := range w.undeclared() {
		if h != "" {
			all = append(all, object)
		}
	}
	slices.Sort(all)
	return all
}

// awaited reports whether the documents declare an object that is being
// removed. It is created again afterwards.
func (w *declaredState) awaited() bool {
	for object := range w.owners {
		if life := w.lifeOf(object); life != "" && life != state.Alive {
			return true
		}
	}
	return false
}

// awaitedOf lists the documents' objects that are being removed and will be
// created again.
func (w *declaredState) awaitedOf(docs []document) (objects []string) {
	for _, doc := range docs {
		for _, object := range doc.decl.Objects() {
			if life := w.lifeOf(object); life != "" && life != state.Alive {
				objects = append(objects, object)
			}
		}
	}
	return objects
}

// existing returns the objects with a record as a declaration. It leaves out
// machines that are removed as soon as no document declares them.
func (w *declaredState) existing() spec.Declaration {
	var all spec.Declaration
	for name, k := range w.machines {
		leaves := w.hasNoData(spec.KindMachine+"/"+name) || w.obeyed && k.record.Held != spec.HoldLost
		if k.life == state.Alive && !leaves {
			documents.Add(&all, spec.Declaration{Machines: map[string]spec.Machine{name: k.record.Machine}})
		}
	}
	for id, g := range w.dependencies {
		if g.life != state.Alive {
			continue
		}
		switch id.Kind {
		case spec.KindNetwork:
			var r spec.NetworkRecord
			if json.Unmarshal(g.now, &r) == nil {
				documents.Add(&all, spec.Declaration{Networks: map[string]spec.Network{id.Name: r.Network}})
			}
		case spec.KindVolume:
			var r spec.VolumeRecord
			if json.Unmarshal(g.now, &r) == nil {
				documents.Add(&all, spec.Declaration{Volumes: map[string]spec.Volume{id.Name: r.Volume}})
			}
		case spec.KindFilesystem:
			var r spec.FilesystemRecord
			if json.Unmarshal(g.now, &r) == nil {
				documents.Add(&all, spec.Declaration{Filesystems: map[string]spec.Filesystem{id.Name: r.Filesystem}})
			}
		}
	}
	return all
}
