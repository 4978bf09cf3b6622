package declare

import (
	"cmp"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
)

// Document is a document that should be in force.
type Document struct {
	documents.Document
	// Source is the source of the declaration: an applied text or a file.
	Source string
	// Confirm is how long a change of the host's own network waits for
	// confirmation.
	Confirm spec.Duration
}

// Parse parses the text of a document. place is the path of its file.
func Parse(place string, text []byte) (Document, error) {
	d, lines, err := spec.ParseAlone(place, text)
	return Document{Document: documents.Document{Name: d.Name, Place: place, Declaration: d, Text: text, Lines: lines}}, err
}

// inForce returns the documents in force, by name.
func (w *State) inForce() map[string]documents.Document {
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

// request returns the request for Merge() with docs in addition to the
// documents in force.
func (w *State) request(docs []Document) documents.Request {
	r := documents.Request{InForce: w.inForce(), Wanted: w.inForce(), Owners: w.recorded(), Existing: w.existing(), Refused: map[string]error{}}
	for _, doc := range docs {
		wanted := doc.Document
		if wanted.Rank = rankOf(doc.Source); wanted.Rank == documents.File {
			wanted.From = cmp.Or(doc.From, doc.Source)
		}
		r.Wanted[doc.Name] = wanted
	}
	return r
}

// recorded maps each object with a record to its declaration. It leaves out
// held objects.
func (w *State) recorded() map[string]string {
	owners := map[string]string{}
	for name, o := range w.objects {
		if o.head().Held == "" {
			owners[name] = o.head().Declaration
		}
	}
	return owners
}

// existing returns a declaration that holds all objects with a record. It
// leaves out machines that are removed as soon as no document declares them.
func (w *State) existing() spec.Declaration {
	var all spec.Declaration
	for name, o := range w.objects {
		leaves := o.yields && (w.hasNoData(name) || w.obeyed && o.head().Held != spec.HoldLost)
		if o.life == state.Alive && !leaves {
			o.add(&all, o.Name, o.now)
		}
	}
	return all
}

// enforce puts the merged documents in force. docs are the wanted documents.
func (w *State) enforce(m documents.Merged, docs []Document) {
	for _, doc := range docs {
		if m.Refused[doc.Name] != nil {
			continue
		}
		d := w.declarations[doc.Name]
		if d == nil {
			d = &declaration{}
			w.declarations[doc.Name] = d
		}
		d.gone = false
		d.record = spec.DeclarationRecord{Source: doc.Source, From: doc.From, Lines: doc.Lines, Document: doc.Declaration}
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
func (w *State) mergeAlone() {
	w.enforce(documents.Merge(w.request(nil)), nil)
}

// Names lists the names of documents.
func Names(docs []Document) string {
	var all []string
	for _, d := range docs {
		all = append(all, d.Name)
	}
	return strings.Join(all, ", ")
}
