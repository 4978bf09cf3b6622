// Package documents decides which documents are in force together, and so
// which objects the host shall have. It is pure: documents go in, the documents
// in force and the reasons against the others come out.
package documents

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"hostler/agent/spec"
)

// Document is one document: a file of conf.d or a text that was applied.
type Document struct {
	// Name is the declaration's name.
	Name string
	// Place names the text in messages about it: a path or a file's stem.
	Place string
	// From is the path of the file, where there is one; messages about other
	// documents name it.
	From string
	// Declaration is the document as it was understood.
	Declaration spec.Declaration
	// Text is the document's text. It is empty for a document that was in force
	// before and whose text is not at hand.
	Text []byte
	// Lines holds the line of each object (KIND/NAME), where known.
	Lines map[string]int
	// Rank says to whom the document gives up an object.
	Rank Rank
}

// Rank orders documents by their claim to an object that several declare.
type Rank int

// The ranks.
const (
	// Leaving: the file is gone, or the document was put together from stamps.
	// It gives each object up to any other document that declares it.
	Leaving Rank = iota
	// Applied by hand. It gives an object up to a file that declares the same.
	Applied
	// File of conf.d.
	File
)

// Request is a question to Merge.
type Request struct {
	// InForce holds the documents that were in force until now, by name.
	InForce map[string]Document
	// Wanted holds the documents that are to be in force, by name. A document
	// that is as in InForce is taken for valid.
	Wanted map[string]Document
	// Owners tells which declaration an object (KIND/NAME) belongs to now.
	Owners map[string]string
	// Existing are the objects that have a record. Documents may refer to them
	// although no document declares them any more.
	Existing spec.Declaration
	// Refused holds, by name, documents that are refused already, and why.
	Refused map[string]error
	// Together: the new documents are put in force together or not at all. The
	// first reasons against them are the answer then, at most maxWrong, and the
	// documents in force are not worked out.
	Together bool
}

// maxWrong is how many documents are refused at once in a request that puts
// documents in force together.
const maxWrong = 20

// Merged is the answer of Merge.
type Merged struct {
	// InForce holds the documents that are in force from now on, without the
	// objects that they gave up; a document without objects may be among them.
	InForce map[string]Document
	// Owners tells which declaration each declared object (KIND/NAME) belongs to.
	Owners map[string]string
	// Refused holds, by name, why a wanted document is not in force. The version
	// of it that was in force before stays in force.
	Refused map[string]error
}

// Merge decides which documents are in force. The answer depends on the set of
// documents alone, never on an order. A document that refers to an object that
// nothing declares, or claims what another one has, is refused as a whole; its
// former version stays in its place, and the others are judged beside that one.
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
		maps.Copy(refused, wrong) // grows each time, so this ends
		if r.Together {
			return Merged{InForce: r.InForce, Owners: r.Owners, Refused: refused}
		}
	}
}

// set is a set of documents whose objects have one owner each.
type set struct {
	docs   map[string]Document
	owners map[string]string
	// new names the documents that may still be refused.
	new map[string]bool
	// rivals lists, by document, the objects that another document owns and
	// declares in another way.
	rivals map[string][]string
}

// assemble puts the wanted documents together, the former versions of refused
// documents in their place, and finds each object's owner.
func assemble(r Request, refused map[string]error) *set {
	s := &set{docs: map[string]Document{}, owners: map[string]string{}, new: map[string]bool{}, rivals: map[string][]string{}}
	for name, doc := range r.Wanted {
		former, known := r.InForce[name]
		switch {
		case refused[name] == nil:
			s.docs[name] = doc
			s.new[name] = doc.Text != nil && (!known || !same(former.Declaration, doc.Declaration))
		case known:
			s.docs[name] = former
		}
	}
	claimants := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.docs)) {
		for _, object := range s.docs[name].Declaration.Objects() {
			claimants[object] = append(claimants[object], name)
		}
	}
	given := map[string][]string{}
	for object, names := range claimants {
		owner := s.ownerOf(object, names, r.Owners[object])
		s.owners[object] = owner
		for _, name := range names {
			rank := s.docs[name].Rank
			switch {
			case name == owner:
			case rank == Leaving, rank == Applied && s.docs[owner].Rank == File && s.alike(object, name, owner):
				given[name] = append(given[name], object)
			case !s.alike(object, name, owner):
				s.rivals[name] = append(s.rivals[name], object)
			}
		}
	}
	for name, objects := range given {
		doc := s.docs[name]
		doc.Declaration = Without(doc.Declaration, objects...)
		s.docs[name] = doc
	}
	return s
}

// ownerOf chooses who declares an object: a document that was in force as it
// is, before a new one; the one that had the object; the first by name. A file
// that declares the same takes it over from an applied document.
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

// alike says whether two documents declare an object in the same way.
func (s *set) alike(object, a, b string) bool {
	return same(objectIn(s.docs[a].Declaration, object), objectIn(s.docs[b].Declaration, object))
}

// Without returns the declaration less the objects (KIND/NAME).
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

// lacking returns a copy: the map belongs to the caller's document.
func lacking[V any](all map[string]V, kind string, gone map[string]bool) map[string]V {
	left := maps.Clone(all)
	maps.DeleteFunc(left, func(name string, _ V) bool { return gone[kind+"/"+name] })
	return left
}

// Declares says whether a declaration holds an object (KIND/NAME).
func Declares(d spec.Declaration, object string) bool { return objectIn(d, object) != nil }

// Strike takes an object (KIND/NAME) out of a declaration, which it changes.
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

// objectIn is one object (KIND/NAME) of a declaration, nil without it.
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

// same compares two values by the text that is kept of them.
func same(a, b any) bool { return bytes.Equal(spec.Encode(a), spec.Encode(b)) }

// Add puts the objects of one declaration into another, which it changes.
func Add(to *spec.Declaration, d spec.Declaration) {
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
