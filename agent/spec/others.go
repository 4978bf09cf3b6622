package spec

import (
	"fmt"
	"slices"
	"strings"
)

// Others is the rest of the documents that a document is checked against. What
// it holds of objects that the document itself declares does not count.
type Others struct {
	// Declared holds the objects that the document may refer to, but for those
	// in Dropped (KIND/NAME).
	Declared Declaration
	Dropped  map[string]bool
	// Claims are what the document must leave alone.
	Claims Claims
	// Where tells where an object (KIND/NAME) stands, e.g. "lan.yaml:4".
	Where map[string]string
	// Open accepts references to objects that nothing declares.
	Open bool
}

// own says whether a path is part of the document that is checked.
func (c *checker) own(path string) bool { return c.places[path] != nil }

// where tells where a path stands, of the document itself or of another.
func (c *checker) where(path string) string {
	if c.own(path) {
		return fmt.Sprintf("line %d", c.line(path))
	}
	if at := c.others.Where[idOf(path)]; at != "" {
		return at
	}
	return "in another document"
}

// idOf is the object that a path is part of as KIND/NAME: network/lan.
func idOf(path string) string {
	kind, rest, _ := strings.Cut(path, ".")
	name, _, _ := strings.Cut(rest, ".")
	return strings.TrimSuffix(kind, "s") + "/" + name
}

// declared is an object that the document may refer to: its own, or another
// document's.
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

// declaredNames are the names that the document may refer to, sorted.
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

func (c *checker) filesystem(name string) Filesystem {
	f, _ := declared(c, KindFilesystem, name, c.decl.Filesystems, c.others.Declared.Filesystems)
	return f
}
