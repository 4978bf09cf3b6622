package declare

import (
	"encoding/json"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// Restored composes the declarations of objects whose records are restored from
// stamps. Stored holds the objects of the store.
type Restored struct {
	Stored    map[state.ID]state.Object
	documents map[string]*spec.Declaration
}

// Add adds an object to its declaration, unless the store has a declaration of
// that name that the user wrote.
func (r *Restored) Add(id state.ID, restored record) {
	name := restored.Head().Declaration
	if name == "" {
		return
	}
	doc, known := r.documents[name]
	if !known {
		doc = &spec.Declaration{Version: spec.Version, Name: name}
		if o, there := r.Stored[state.ID{Kind: spec.KindDeclaration, Name: name}]; there {
			var stored spec.DeclarationRecord
			if doc = nil; json.Unmarshal(o.Spec, &stored) == nil && stored.Source == spec.SourceStamps {
				doc = &stored.Document
			}
		}
		if r.documents == nil {
			r.documents = map[string]*spec.Declaration{}
		}
		r.documents[name] = doc
	}
	if doc != nil {
		kinds[id.Kind].add(doc, id.Name, restored)
	}
}

// Writes returns the writes of the declarations.
func (r *Restored) Writes() (writes []state.Write) {
	for _, name := range slices.Sorted(maps.Keys(r.documents)) {
		if doc := r.documents[name]; doc != nil {
			id := state.ID{Kind: spec.KindDeclaration, Name: name}
			writes = append(writes, state.Write{
				ID: id, Revision: r.Stored[id].Revision, Life: state.Alive,
				Spec: spec.Encode(spec.DeclarationRecord{Source: spec.SourceStamps, Document: *doc}),
			})
		}
	}
	return writes
}
