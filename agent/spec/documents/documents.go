// Package documents decides which documents are in force together, and so which
// objects the host should have. It is pure: it returns the documents in force
// and the reasons why others are not, and changes nothing.
package documents

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"hostler/agent/spec"
)

// Document is a file of conf.d or an applied text.
type Document struct {
	// Name is the declaration's name.
	Name string
	// Place names the document in messages: a path or a file's stem.
	Place string
	// From is the path of the file, if any; messages about other
	// documents name it.
	From string
	// Declaration is the parsed document.
	Declaration spec.Declaration
	// Text is the document's text. It is empty for a document that was in force
	// before and whose text is not available.
	Text []byte
	// Lines holds the line of each object (KIND/NAME), where known.
	Lines map[string]int
	// Rank decides which documents take an object over from this document.
	Rank Rank
}

// Rank orders documents by their claim to an object that several documents
// declare.
type Rank int

// The values of Rank.
const (
	// Leaving means that the file is gone, or that recovery composed the document
	// from stamps. Any other document that declares one of its objects takes the
	// object over.
	Leaving Rank = iota
	// Applied means that a user applied the document. A file of conf.d that
	// declares one of its objects in the same way takes the object over.
	Applied
	// File means that the document is a file of conf.d.
	File
)

// Request is the input of Merge.
type Request struct {
	// InForce holds the documents that were in force until now, by name.
	InForce map[string]Document
	// Wanted holds the documents that should be in force, by name. A document that
	// equals its version in InForce counts as valid.
	Wanted map[string]Document
	// Owners maps each object (KIND/NAME) to its current declaration.
	Owners map[string]string
	// Existing are the objects with a record. Documents may refer to them even if
	// no document declares them any more.
	Existing spec.Declaration
	// Refused maps the names of documents that are already refused to the reason.
	Refused map[string]error
	// Together is true if the new documents are put in force together or not at
	// all. If any is refused, the documents in force stay unchanged, and the
	// result holds at most maxWrong reasons.
	Together bool
	// Open is true if the documents may refer to objects that none declares.
	Open bool
}

// maxWrong bounds the refused documents of a request with Together.
const maxWrong = 20

// Merged is the result of Merge.
type Merged struct {
	// InForce holds the documents that are in force from now on, without the
	// objects that other documents took over. Some of them may have no objects
	// left.
	InForce map[string]Document
	// Owners maps each declared object (KIND/NAME) to its declaration.
	Owners map[string]string
	// Refused maps the name of each wanted document that is not in force to the
	// reason. The document's former version stays in force.
	Refused map[string]error
}

// Merge decides which documents are in force. The result depends on the set of
// documents only, not on an order. A document is refused as a whole if it
// refers to an undeclared object or claims something that another document has,
// e.g. a port. The document's former version takes its place, and the other
// documents are checked again together with that version.
func Merge(r Request) Merged {
	refused := maps.Clone(r.Refused)
	if refused == nil {
		refused = map[string]error{}
	}
	for {
		m := assemble(r, refused)
		wrong := m.check(r)
		if len(wrong) == 0 {
			return Merged{InForce: m.docs, Owners: m.owners, Refused: refused}
		}
		maps.Copy(refused, wrong) // grows in each round, so the loop ends
		if r.Together {
			return Merged{InForce: r.InForce, Owners: r.Owners, Refused: refused}
		}
	}
}

// set is a set of documents in which each object has a single owner.
type set struct {
	docs   map[string]Document
	owners map[string]string
	// new names the documents that can still be refused.
	new map[string]bool
	// rivals lists, by document, the objects that another document owns and
	// declares differently.
	rivals map[string][]string
}

// assemble joins the wanted documents, with the former versions of refused
// documents in their place, and finds each object's owner.
func assemble(r Request, refused map[string]error) *set {
	s := &set{docs: map[string]Document{}, owners: map[string]string{}, new: map[string]bool{}, rivals: map[string][]string{}}
	for name, doc := range r.Wanted {
		previous, known := r.InForce[name]
		switch {
		case refused[name] == nil:
			s.docs[name] = doc
			s.new[name] = doc.Text != nil && (!known || !same(previous.Declaration, doc.Declaration))
		case known:
			s.docs[name] = previous
		}
	}
	claimants := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.docs)) {
		for _, object := range s.docs[name].Declaration.Objects() {
			claimants[object] = append(claimants[object], name)
		}
	}
	conceded := map[string][]string{}
	for object, names := range claimants {
		owner := s.ownerOf(object, names, r.Owners[object])
		s.owners[object] = owner
		for _, name := range names {
			rank := s.docs[name].Rank
			switch {
			case name == owner:
			case rank == Leaving, rank == Applied && s.docs[owner].Rank == File && s.alike(object, name, owner):
				conceded[name] = append(conceded[name], object)
			case !s.alike(object, name, owner):
				s.rivals[name] = append(s.rivals[name], object)
			}
		}
	}
	for name, objects := range conceded {
		doc := s.docs[name]
		doc.Declaration = Without(doc.Declaration, objects...)
		s.docs[name] = doc
	}
	return s
}

// ownerOf chooses the document that owns an object. had is the previous owner.
// It prefers a document that is not leaving, then an unchanged document, then
// the previous owner, then the first by name. But a file that declares the
// object alike takes it over from an applied document.
func (s *set) ownerOf(object string, names []string, had string) string {
	owner := slices.MinFunc(names, func(a, b string) int {
		return cmp.Or(
			truth(s.docs[a].Rank == Leaving)-truth(s.docs[b].Rank == Leaving),
			truth(s.new[a])-truth(s.new[b]),
			truth(b == had)-truth(a == had),
			cmp.Compare(a, b),
		)
	})
	if s.docs[owner].Rank != Applied {
		return owner
	}
	for _, name := range names {
		if s.docs[name].Rank == File && s.alike(object, name, owner) {
			return name
		}
	}
	return owner
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// alike reports whether two documents declare an object in the same way.
func (s *set) alike(object, a, b string) bool {
	return same(objectIn(s.docs[a].Declaration, object), objectIn(s.docs[b].Declaration, object))
}

// Without returns the declaration without the objects (KIND/NAME).
func Without(d spec.Declaration, objects ...string) spec.Declaration {
	gone := map[string]bool{}
	for _, o := range objects {
		gone[o] = true
	}
	d.Machines = lacking(d.Machines, spec.KindMachine, gone)
	d.Networks = lacking(d.Networks, spec.KindNetwork, gone)
	d.Volumes = lacking(d.Volumes, spec.KindVolume, gone)
	d.Filesystems = lacking(d.Filesystems, spec.KindFilesystem, gone)
	return d
}

// lacking returns the map without the objects in gone. It is a copy, because
// the map belongs to the caller's document.
func lacking[V any](all map[string]V, kind string, gone map[string]bool) map[string]V {
	left := maps.Clone(all)
	maps.DeleteFunc(left, func(name string, _ V) bool { return gone[kind+"/"+name] })
	return left
}

// Declares reports whether a declaration holds an object (KIND/NAME).
func Declares(d spec.Declaration, object string) bool { return objectIn(d, object) != nil }

// Strike removes an object (KIND/NAME) from a declaration in place.
func Strike(d spec.Declaration, object string) {
	kind, name, _ := strings.Cut(object, "/")
	switch kind {
	case spec.KindMachine:
		delete(d.Machines, name)
	case spec.KindNetwork:
		delete(d.Networks, name)
	case spec.KindVolume:
		delete(d.Volumes, name)
	case spec.KindFilesystem:
		delete(d.Filesystems, name)
	}
}

// objectIn returns the object (KIND/NAME) of a declaration, or nil if it is
// absent.
func objectIn(d spec.Declaration, object string) any {
	kind, name, _ := strings.Cut(object, "/")
	switch kind {
	case spec.KindMachine:
		return valueOf(d.Machines, name)
	case spec.KindNetwork:
		return valueOf(d.Networks, name)
	case spec.KindVolume:
		return valueOf(d.Volumes, name)
	case spec.KindFilesystem:
		return valueOf(d.Filesystems, name)
	}
	return nil
}

func valueOf[V any](all map[string]V, name string) any {
	if v, there := all[name]; there {
		return v
	}
	return nil
}

// same compares two values by their encoded text.
func same(a, b any) bool { return bytes.Equal(spec.Encode(a), spec.Encode(b)) }

// addAll adds the objects of a declaration to another in place.
func addAll(to *spec.Declaration, d spec.Declaration) {
	add(&to.Machines, d.Machines)
	add(&to.Networks, d.Networks)
	add(&to.Volumes, d.Volumes)
	add(&to.Filesystems, d.Filesystems)
}

func add[V any](to *map[string]V, from map[string]V) {
	if *to == nil {
		*to = map[string]V{}
	}
	maps.Copy(*to, from)
}
