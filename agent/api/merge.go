package api

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// inForce returns the documents in force, by name.
func (w *declaredState) inForce() map[string]documents.Document {
	all := map[string]documents.Document{}
	for name, d := range w.declarations {
		if d.gone {
			continue
		}
		doc := documents.Document{Name: name, Place: name, From: d.record.From, Declaration: d.record.Document, Lines: d.record.Lines, Rank: rankOf(d.record.Source)}
		if isFile(d.record.Source) {
			doc.Place, doc.From = d.record.Source, d.record.Source
		}
		all[name] = doc
	}
	return all
}

func rankOf(source string) documents.Rank {
	switch {
	case source == spec.SourceStamps:
		return documents.Leaving
	case isFile(source):
		return documents.File
	}
	return documents.Applied
}

// request asks which documents are in force if docs are wanted in addition.
func (w *declaredState) request(docs []document) documents.Request {
	r := documents.Request{InForce: w.inForce(), Wanted: w.inForce(), Owners: w.recorded(), Existing: w.existing(), Refused: map[string]error{}}
	for _, doc := range docs {
		r.Wanted[doc.name] = documents.Document{
			Name: doc.name, Place: doc.place, From: cmp.Or(doc.from, fileOf(doc.source)), Declaration: doc.decl, Text: doc.text, Lines: doc.lines, Rank: rankOf(doc.source),
		}
	}
	return r
}

// fileOf returns the path of a declaration's source, "" if it is not a file.
func fileOf(source string) string {
	if isFile(source) {
		return source
	}
	return ""
}

// recorded maps each object with a record to its declaration.
func (w *declaredState) recorded() map[string]string {
	owners := map[string]string{}
	for name, k := range w.machines {
		if k.record.Held == "" {
			owners[spec.KindMachine+"/"+name] = k.record.Declaration
		}
	}
	for id, g := range w.dependencies {
		if g.held == "" {
			owners[id.Kind+"/"+id.Name] = g.declaration
		}
	}
	return owners
}

// enforce puts the merged documents in force. docs are the wanted documents.
func (w *declaredState) enforce(m documents.Merged, docs []document) {
	for _, doc := range docs {
		if m.Refused[doc.name] != nil {
			continue
		}
		d := w.declarations[doc.name]
		if d == nil {
			d = &declared{}
			w.declarations[doc.name] = d
		}
		d.gone = false
		d.record = spec.DeclarationRecord{Source: doc.source, From: doc.from, Lines: doc.lines, Document: doc.decl}
	}
	for name, d := range w.declarations {
		doc, there := m.InForce[name]
		had := d.record.Document.Len()
		if !there || had > 0 && doc.Declaration.Len() == 0 {
			d.gone = true
			continue
		}
		if doc.Declaration.Len() != had {
			d.record.Document = doc.Declaration
		}
	}
	w.owners = m.Owners
}

// mergeAlone merges the documents again after a document was changed in place.
func (w *declaredState) mergeAlone() {
	w.enforce(documents.Merge(w.request(nil)), nil)
}

// inTheWay finds the wanted documents that conflict with existing objects, and
// files with unsupported features.
func (w *declaredState) inTheWay(docs []document, refused map[string]error) {
	for _, doc := range docs {
		if unsupported := spec.Unsupported(doc.decl); len(unsupported) > 0 && isFile(doc.source) {
			refused[doc.name] = fault.New(fault.Invalid, "cannot apply %s: %s", doc.name, fault.List(unsupported, "; "))
		} else if err := w.checkTypes(doc); err != nil {
			refused[doc.name] = err
		} else if err := cmp.Or(w.checkPlaces(doc), w.checkRenames(doc)); err != nil {
			refused[doc.name] = err
		}
	}
}

// checkUsed refuses to remove an object that a declared machine or filesystem
// uses.
func (w *declaredState) checkUsed(before map[string]string) error {
	for _, object := range slices.Sorted(maps.Keys(before)) {
		if w.owners[object] != "" {
			continue
		}
		users, err := w.usersOf(object, nil)
		if err != nil {
			return err
		}
		users = slices.DeleteFunc(users, func(u string) bool { return w.owners[u] == "" })
		if len(users) > 0 {
			return fault.New(fault.Conflict, "cannot remove %s, which no document would declare: it is used by %s (declaration %s); declare it, or apply %s without it",
				object, fault.List(users, ", "), w.owners[users[0]], users[0])
		}
	}
	return nil
}

func idOf(object string) state.ID {
	kind, name, _ := strings.Cut(object, "/")
	return state.ID{Kind: kind, Name: name}
}
