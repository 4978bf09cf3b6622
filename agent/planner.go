package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"hostler/agent/client"
	"hostler/agent/containersetup"
	"hostler/agent/declare"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// planner computes the effect of an apply, with the same function that the
// provisioner uses.
type planner struct{ *host }

// Plan implements api.Planner. It makes one list call per container type with
// machines in scope and changes nothing. A hypervisor that is down prevents
// only plans with its own machines.
func (p planner) Plan(ctx context.Context, machines []declare.Planned, scope map[string]bool) ([]client.Step, error) {
	record, err := p.hostRecord(ctx)
	if err != nil {
		return nil, err
	}
	intents, err := p.store.Intents(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal: %w", err)
	}
	objects := make([]state.Object, len(machines))
	for i, m := range machines {
		objects[i] = m.After
		if objects[i].UID == "" {
			objects[i].UID = "new:" + m.After.Name
		}
	}
	steps, objects, err := p.planStorage(ctx, objects, record)
	if err != nil {
		return nil, err
	}
	more, objects, err := p.planNetworks(ctx, objects, record)
	steps = append(more, steps...)
	if err != nil {
		return nil, err
	}
	for _, t := range p.types() {
		desired, err := provisioner.Decode(objects, t, provisioner.ConfigOf(record, t))
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(desired, func(d provisioner.Desired) bool { return scope[spec.KindMachine+"/"+d.Name] }) {
			continue
		}
		more, err := p.planType(ctx, t, desired, intents, record)
		if err != nil {
			return nil, err
		}
		steps = append(steps, more...)
	}
	return steps, nil
}

func (p planner) planType(ctx context.Context, t spec.ContainerType, desired []provisioner.Desired, intents []state.Intent, record spec.HostRecord) ([]client.Step, error) {
	observed := provisioner.Observed{Complete: true, Intents: intents}
	var differ containerbroker.Differ
	d, missing := p.driver(t)
	if missing == nil {
		var err error
		differ = d.Broker.(containerbroker.Differ)
		if observed.Instances, err = d.Broker.List(ctx, false); err != nil {
			return nil, fmt.Errorf("cannot plan: %w", err)
		}
	}
	steps, err := p.preparation(ctx, t, missing == nil)
	if err != nil {
		return nil, err
	}
	config := provisioner.ConfigOf(record, t)
	provisioner.MarkNotAutostarted(desired, observed.Instances, config.Owner(), config.Host.Boot)
	for _, s := range provisioner.Plan(desired, observed, provisioner.Policy{
		// The plan shows all steps that are left, whatever their delay.
		Namespace: config.Namespace, Lineage: config.Lineage, Harvest: config.Harvest, Nudged: provisioner.NudgeAll(), AssumeReady: true,
		Diff: func(m containerbroker.Machine, i containerbroker.Instance) []containerbroker.Change {
			return differ.Diff(m, i)
		},
	}) {
		if s.Visible() {
			steps = append(steps, stepView(s))
		}
	}
	return withoutBookkeeping(steps), nil
}

// preparation returns the steps that prepare the host for machines of a type.
// If the hypervisor exists, only a type that was never ready is checked,
// because the check takes several calls.
func (p planner) preparation(ctx context.Context, t spec.ContainerType, there bool) ([]client.Step, error) {
	if there {
		types, _, err := p.store.List(ctx, spec.KindContainerType)
		if err != nil {
			return nil, fmt.Errorf("cannot read the container types: %w", err)
		}
		for _, o := range types {
			var status spec.TypeStatus
			if o.Name == string(t) && json.Unmarshal(o.Status, &status) == nil && status.State == containersetup.StateReady {
				return nil, nil
			}
		}
	}
	ok, why := p.initialiser(t).Satisfied(ctx)
	if ok {
		return nil, nil
	}
	return []client.Step{{
		Object: spec.KindContainerType + "/" + string(t), Action: "initialise", Impact: containerbroker.ImpactNone, Detail: why,
	}}, nil
}

// withoutBookkeeping leaves out steps that only update an instance's stamp if
// the machine has another step.
func withoutBookkeeping(steps []client.Step) []client.Step {
	said := map[string]int{}
	for _, s := range steps {
		said[s.Object]++
	}
	isRecord := func(c client.Change) bool { return c.Field == containerbroker.FieldRecord }
	shown := steps[:0]
	for _, s := range steps {
		if slices.ContainsFunc(s.Changes, isRecord) {
			if len(s.Changes) == 1 && said[s.Object] > 1 {
				continue
			}
			if len(s.Changes) == 1 {
				s.Impact, s.Detail = containerbroker.ImpactNone, "storing its declaration with the instance"
			}
			s.Changes = slices.DeleteFunc(s.Changes, isRecord)
		}
		shown = append(shown, s)
	}
	return shown
}

func stepView(s provisioner.Step) client.Step {
	view := client.Step{
		Object: spec.KindMachine + "/" + s.Machine, Action: string(s.Action), Impact: s.Impact,
		Detail: s.Detail, Held: s.Held, Allow: s.Allow, Changes: slices.Clone(s.Changes),
	}
	if s.Action == provisioner.ActionHarvest {
		view.Action = string(provisioner.ActionDelete)
	}
	return view
}

// types returns the container types for which the agent has a driver, sorted.
func (h *host) types() []spec.ContainerType {
	types := make([]spec.ContainerType, 0, len(h.drivers))
	for t := range h.drivers {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}
