package cli

import (
	"context"
	"slices"
	"strings"

	"hostler/agent/spec"
)

// goals are the objects to wait for. The wait lasts until the objects in ready
// are ready and the objects in gone are gone.
type goals struct {
	ready, gone []reference
	// remade are the objects of ready whose predecessors with the same name are
	// still being removed.
	remade []reference
	// held are the names of the machines with held steps.
	held []string
	// check returns the remaining work, keyed by machine. It is called when all
	// objects look settled, because their status may belong to a generation whose
	// steps are about to start.
	check func(ctx context.Context) (map[string]string, error)
}

// all returns the objects in the order in which they are shown, with the
// machines last and sorted by name.
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

// referencesOf parses texts of the form KIND/NAME.
func referencesOf(objects []string) (refs []reference) {
	for _, o := range objects {
		kind, name, _ := strings.Cut(o, "/")
		refs = append(refs, reference{kind, name})
	}
	return refs
}

// shownAs returns the bare name of a machine, or KIND/NAME for another object.
func shownAs(r reference) string {
	if r.kind == spec.KindMachine {
		return r.name
	}
	return r.String()
}
