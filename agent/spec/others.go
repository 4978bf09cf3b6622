package spec

import (
	"fmt"
	"slices"
	"strings"
)

// Others are the other documents against which a document is checked. Entries
// for objects that the document itself declares are ignored.
type Others struct {
	// Declared holds the objects that the document may refer to, except for those
	// in Dropped (KIND/NAME).
	Declared Declaration
	Dropped  map[string]bool
	// Claims are the things of other documents, which this document must not claim
	// too.
	Claims Claims
	// Where holds the place of each object (KIND/NAME), e.g. "lan.yaml:4".
	Where map[string]string
	// Open is true if references to undeclared objects are accepted.
	Open bool
}

// own reports whether a path is part of the checked document.
func (c *checker) own(path string) bool { return c.places[path] != nil }

// where describes the place of a path for messages, e.g. "line 4". The path is
// in the checked document or in another.
func (c *checker) where(path string) string {
	if c.own(path) {
		return fmt.Sprintf("line %d", c.line(path))
	}
	if at := c.others.Where[idOf(path)]; at != "" {
		return at
	}
	return "in another document"
}

// idOf returns the object that a path is part of as KIND/NAME, e.g.
// network/lan.
func idOf(path string) string {
	kind, rest, _ := strings.Cut(path, ".")
	name, _, _ := strings.Cut(rest, ".")
	return strings.TrimSuffix(kind, "s") + "/" + name
}

// declared returns the named object that the document may refer to. It is one
// of the document's own objects or of others. The result is false if there is
// none.
func declared[T any](c *checker, kind, name string, own, others map[string]T) (T, bool) {
	v, there := own[name]
	if !there && !c.dropped(kind, name) {
		v, there = others[name]
	}
	return v, there
}

func (c *checker) dropped(kind, name string) bool {
	return len(c.others.Dropped) > 0 && c.others.Dropped[kind+"/"+name]
}

// declaredNames returns the names that the document may refer to, sorted.
func declaredNames[T any](c *checker, kind string, own, others map[string]T) []string {
	names := make([]string, 0, len(own)+len(others))
	for name := range own {
		names = append(names, name)
	}
	for name := range others {
		if _, both := own[name]; !both && !c.dropped(kind, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
