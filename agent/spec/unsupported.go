package spec

import (
	"fmt"
	"maps"
	"slices"
)

// notYet lists declared features that are parsed and checked but not
// implemented by this agent. Remove a row when its feature is implemented. Each
// row has the kind, the names of the affected objects and the feature.
var notYet = unsupportedTypes()

type unsupported struct {
	kind string
	in   func(Declaration) []string
	what string // for the sentence: "machine/web: publish is not yet …"
}

func unsupportedTypes() []unsupported {
	var rows []unsupported
	for _, i := range containerTypes {
		if !i.Supported {
			rows = append(rows, unsupported{KindMachine, machinesWith(func(m Machine) bool { return m.Type == i.Type }), "type " + string(i.Type) + " is"})
		}
	}
	return rows
}

func machinesWith(has func(Machine) bool) func(Declaration) []string {
	return func(d Declaration) []string {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(d.Machines)) {
			if has(d.Machines[name]) {
				names = append(names, name)
			}
		}
		return names
	}
}

// Unsupported returns a sentence for each part of a declaration that this agent
// does not implement yet. Empty: it implements all of it.
func Unsupported(d Declaration) []string {
	var sentences []string
	for _, row := range notYet {
		for _, name := range row.in(d) {
			sentences = append(sentences, fmt.Sprintf("%s/%s: %s not yet supported by this agent", row.kind, name, row.what))
		}
	}
	return sentences
}
