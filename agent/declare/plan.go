package declare

import (
	"maps"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/plan"
)

// Host answers questions about this host. The answers change nothing.
type Host struct {
	// Refuse returns why the host has no room for the new and changed objects, or
	// nil if it has room.
	Refuse func([]Planned) error
	// Plan returns the steps that carry out the planned objects. scope holds the
	// objects in question.
	Plan func(objects []Planned, scope map[string]bool) ([]plan.Step, error)
}

// Scope returns the objects that the documents declare.
func Scope(docs []Document) map[string]bool {
	scope := map[string]bool{}
	for _, d := range docs {
		for _, o := range d.Declaration.Objects() {
			scope[o] = true
		}
	}
	return scope
}

// steps returns the host's steps for the objects of the documents and for the
// removed objects.
func (w *State) steps(docs []Document, removed []string, host Host) ([]plan.Step, error) {
	scope := Scope(docs)
	for _, o := range removed {
		scope[o] = true
	}
	all, err := host.Plan(w.Planned(), scope)
	if err != nil {
		return nil, err
	}
	inScope := []plan.Step{}
	for _, st := range all {
		// Machines need the steps that prepare the host for their container type.
		if scope[st.Object] || strings.HasPrefix(st.Object, spec.KindContainerType+"/") {
			inScope = append(inScope, st)
		}
	}
	if !slices.ContainsFunc(inScope, func(st plan.Step) bool { return scope[st.Object] }) {
		return []plan.Step{}, nil
	}
	return inScope, nil
}

// HeldSteps maps the path of a file to the first of its steps that waits for
// consent.
func (w *State) HeldSteps(docs []Document, host Host) (map[string]plan.Step, error) {
	steps, err := w.steps(docs, nil, host)
	held := map[string]plan.Step{}
	for _, st := range steps {
		for _, doc := range docs {
			if _, own := doc.Lines[st.Object]; own && st.Held != "" && held[doc.Source].Object == "" {
				held[doc.Source] = st
			}
		}
	}
	return held, err
}

// BlindSteps returns the steps that are known without observing the host. why
// is the reason why the host cannot be observed.
func BlindSteps(objects []Planned, why error) []plan.Step {
	var steps []plan.Step
	for _, m := range objects {
		st := plan.Step{Object: m.After.Kind + "/" + m.After.Name, Detail: "the impact is not known: " + why.Error()}
		switch {
		case m.Before == nil:
			st.Action, st.Impact = "create", "none"
		case m.After.Life != state.Alive && m.Before.Life == state.Alive:
			st.Action, st.Impact = "delete", "destroy"
		case m.After.Generation != m.Before.Generation:
			st.Action = "update"
		default:
			continue
		}
		steps = append(steps, st)
	}
	return steps
}

// byObject maps each object to the index of its first step.
func byObject(steps []plan.Step) map[string]int {
	first := map[string]int{}
	for i, st := range slices.Backward(steps) {
		first[st.Object] = i
	}
	return first
}

// withRemoved adds a step for each removed object without a step. The planner
// plans no step for an object that never had an instance or data.
func withRemoved(steps []plan.Step, removed []string) []plan.Step {
	planned := byObject(steps)
	for _, object := range removed {
		if _, known := planned[object]; !known {
			steps = append(steps, plan.Step{Object: object, Action: "delete", Impact: "none", Detail: "no document declares it any more; it has no data"})
		}
	}
	return steps
}

// Objects lists the declared objects of the documents except machines, and the
// names of the machines, both sorted.
func Objects(docs []Document) (objects, machines []string) {
	for _, object := range slices.Sorted(maps.Keys(Scope(docs))) {
		if name, ok := strings.CutPrefix(object, spec.KindMachine+"/"); ok {
			machines = append(machines, name)
		} else {
			objects = append(objects, object)
		}
	}
	return objects, machines
}
