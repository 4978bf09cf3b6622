package cli

import (
	"context"
	"slices"
	"strings"

	"hostler/agent/spec"
)

// goals are the objects to wait for: until they are ready, or until they are
// gone.
type goals struct {
	ready, gone []reference
	// remade are objects of ready whose former ones are still being removed.
	remade []reference
	// check returns the remaining work by machine. It is asked when all objects
	// look settled: their status may belong to a generation whose steps are about
	// to start.
	check func(ctx context.Context) (map[string]string, error)
}

// all returns the objects in the order in which they are shown: the machines
// last, by name.
func (g goals) all() []reference {
	all := slices.Concat(g.ready, g.gone)
	slices.SortStableFunc(all, func(a, b reference) int {
		am, bm := a.kind == spec.KindMachine, b.kind == spec.KindMachine
		switch {
		case am && bm:
			return natural(a.name, b.name)
		case am:
			return 1
		case bm:
			return -1
		}
		return 0
	})
	return all
}

// machines returns the names of the machines.
func (g goals) machines() (names []string) {
	for _, r := range g.all() {
		if r.kind == spec.KindMachine {
			names = append(names, r.name)
		}
	}
	return names
}

// referencesOf returns the references in KIND/NAMEs.
func referencesOf(objects []string) (refs []reference) {
	for _, o := range objects {
		kind, name, _ := strings.Cut(o, "/")
		refs = append(refs, reference{kind, name})
	}
	return refs
}

// shownAs returns the bare name of a machine, KIND/NAME of another object.
func shownAs(r reference) string {
	if r.kind == spec.KindMachine {
		return r.name
	}
	return r.String()
}
