package spec

import (
	"fmt"
	"maps"
	"slices"
)

// notYet lists what is parsed and checked but not carried out by this agent. A
// row goes when its part arrives. Each names the kind and the objects that hold
// the thing, and what of them it is.
var notYet = []struct {
	kind string
	in   func(Declaration) []string
	what string // for the sentence: "machine/web: publish is not yet …"
}{
	{KindMachine, machinesWith(func(m Machine) bool { return m.Type == LXC }), "type lxc is"},
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

// Unsupported says in one sentence each what of a declaration this agent
// cannot carry out yet. Empty: all of it can be.
func Unsupported(d Declaration) []string {
	var sentences []string
	for _, row := range notYet {
		for _, name := range row.in(d) {
			sentences = append(sentences, fmt.Sprintf("%s/%s: %s not yet supported by this agent", row.kind, name, row.what))
		}
	}
	return sentences
}
