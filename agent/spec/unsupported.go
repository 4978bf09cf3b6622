package spec

import (
	"fmt"
	"maps"
	"slices"
)

// Unsupported is a declared feature that this agent parses and checks but does
// not implement.
type Unsupported struct {
	Object  string // KIND/NAME
	Feature string
}

// String returns a sentence.
func (u Unsupported) String() string { return u.Object + ": " + u.Feature }

// UnsupportedIn lists the features of a declaration that this agent does not
// implement yet.
func UnsupportedIn(d Declaration) (all []Unsupported) {
	for _, name := range slices.Sorted(maps.Keys(d.Machines)) {
		t := d.Machines[name].Type
		if info, known := t.Info(); known && !info.Supported {
			all = append(all, Unsupported{KindMachine + "/" + name, fmt.Sprintf("type %s is not yet supported by this agent", t)})
		}
	}
	return all
}
