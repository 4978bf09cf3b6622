package api

import (
	"context"
	"maps"
	"slices"
	"strings"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
)

// steps returns the planner's steps for the objects of the documents. If the
// host cannot be observed, planning fails; an apply must still succeed and
// returns the changes of the declarations instead.
func (s *Server) steps(ctx context.Context, w *declaredState, docs []document, removed []string, dry bool) ([]client.Step, error) {
	scope := map[string]bool{}
	for _, d := range docs {
		for _, o := range d.decl.Objects() {
			scope[o] = true
		}
	}
	for _, o := range removed {
		scope[o] = true
	}
	planned := w.planned()
	all, err := s.o.Service.Planner.Plan(ctx, planned, scope)
	if err != nil {
		if dry {
			return nil, err
		}
		s.log.Warn("cannot plan the applied documents", "error", err)
		all = blindSteps(planned, err)
	}
	inScope := []client.Step{}
	for _, st := range all {
		// Steps that prepare the host precede the machines that need them.
		if scope[st.Object] || strings.HasPrefix(st.Object, spec.KindContainerType+"/") {
			inScope = append(inScope, st)
		}
	}
	for _, st := range inScope {
		if scope[st.Object] {
			return inScope, nil
		}
	}
	return []client.Step{}, nil
}

// warnings asks the planner which of the documents' objects will fail. A reader
// gets no warnings about images in files, which would say whether a file exists.
func (s *Server) warnings(ctx context.Context, w *declaredState, docs []document) []string {
	f, ok := s.o.Service.Planner.(Warner)
	if !ok {
		return nil
	}
	reads := callerFrom(ctx).role == roleReader
	scope := map[string]bool{}
	for _, d := range docs {
		for _, o := range d.decl.Objects() {
			name, _ := strings.CutPrefix(o, spec.KindMachine+"/")
			if !reads || !strings.HasPrefix(d.decl.Machines[name].Image, "file:") {
				scope[o] = true
			}
		}
	}
	return f.Warnings(ctx, w.planned(), scope)
}

// blindSteps returns the steps that are known without observing the host.
func blindSteps(objects []PlannedObject, why error) []client.Step {
	var steps []client.Step
	for _, m := range objects {
		st := client.Step{Object: m.After.Kind + "/" + m.After.Name, Detail: "the impact is not known: " + why.Error()}
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

// heldBy returns the names of a kind's objects with a step that waits for
// consent.
func heldBy(steps []client.Step, kind string) map[string]bool {
	held := map[string]bool{}
	for _, st := range steps {
		if name, ok := strings.CutPrefix(st.Object, kind+"/"); ok && st.Held != "" {
			held[name] = true
		}
	}
	return held
}

func machinesOf(docs []document) []string {
	all := []string{}
	for _, d := range docs {
		all = slices.AppendSeq(all, maps.Keys(d.decl.Machines))
	}
	slices.Sort(all)
	return all
}

// dependenciesIn returns the declared objects (KIND/NAME) except machines.
func dependenciesIn(docs []document) (all []string) {
	for _, d := range docs {
		all = append(all, slices.DeleteFunc(slices.Clone(d.decl.Objects()), func(o string) bool {
			return strings.HasPrefix(o, spec.KindMachine+"/")
		})...)
	}
	slices.Sort(all)
	return all
}

func unsupportedOf(docs []document) []string {
	var all []string
	for _, d := range docs {
		all = append(all, spec.Unsupported(d.decl)...)
	}
	return all
}

// holdUnsupported marks the steps that the agent does not support, and adds a
// step for each such object without a step.
func holdUnsupported(steps []client.Step, unsupported []string) []client.Step {
	first := map[string]int{}
	for i, st := range slices.Backward(steps) {
		first[st.Object] = i
	}
	for _, sentence := range unsupported {
		object, what, _ := strings.Cut(sentence, ": ")
		i, known := first[object]
		if !known {
			i = len(steps)
			first[object] = i
			steps = append(steps, client.Step{Object: object, Action: "none", Impact: "none", Detail: what})
		}
		steps[i].Held = what
	}
	return steps
}
