package planning

import (
	"context"
	"fmt"
	"slices"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/networkprovisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
)

// planNetworks plans the networks among objects. It returns the steps and a
// copy of objects in which the networks have their expected statuses, for the
// plan of the machines.
func (p Planner) planNetworks(ctx context.Context, objects []state.Object, record spec.HostRecord) ([]client.Step, []state.Object, error) {
	if !slices.ContainsFunc(objects, func(o state.Object) bool { return o.Kind == spec.KindNetwork }) {
		return nil, objects, nil
	}
	desired, plan, err := p.networkPlan(ctx, objects, record)
	if err != nil {
		return nil, nil, err
	}
	var steps []client.Step
	objects = slices.Clone(objects)
	places := map[string]int{}
	for i, o := range objects {
		if o.Kind == spec.KindNetwork {
			places[o.Name] = i
		}
	}
	for i, n := range desired.Networks {
		steps = append(steps, plan.Networks[i].Steps...)
		objects[places[n.Name]].Status = spec.Encode(plan.Networks[i].ReadyStatus(n))
	}
	return steps, objects, nil
}

// Refuse implements api.Planner. It checks only networks and machines that are
// new or changed. The status reports the problems of unchanged ones.
func (p Planner) Refuse(ctx context.Context, planned []declare.Planned) error {
	objects := make([]state.Object, len(planned))
	changed := map[string]bool{}
	for i, each := range planned {
		objects[i] = each.After
		kind := each.After.Kind
		if (kind == spec.KindNetwork || kind == spec.KindMachine) && each.After.Life == state.Alive && (each.Before == nil || string(each.Before.Spec) != string(each.After.Spec)) {
			changed[kind+"/"+each.After.Name] = true
		}
	}
	if len(changed) == 0 || !slices.ContainsFunc(objects, func(o state.Object) bool { return o.Kind == spec.KindNetwork }) {
		return nil
	}
	record, err := p.Host(ctx)
	if err != nil {
		return err
	}
	desired, observed, policy, err := p.networkLook(ctx, objects, record)
	if err != nil {
		p.Log.Warn("Cannot check the host's network for obstacles.", "error", err)
		return nil
	}
	return networkprovisioner.Refuse(desired, observed, policy, changed)
}

func (p Planner) networkPlan(ctx context.Context, objects []state.Object, record spec.HostRecord) (networkprovisioner.Desired, networkprovisioner.Plan, error) {
	desired, observed, policy, err := p.networkLook(ctx, objects, record)
	if err != nil {
		return desired, networkprovisioner.Plan{}, fmt.Errorf("cannot plan: %w", err)
	}
	return desired, networkprovisioner.Make(desired, observed, policy), nil
}

// networkLook reads the inputs of a plan of networks.
func (p Planner) networkLook(ctx context.Context, objects []state.Object, record spec.HostRecord) (d networkprovisioner.Desired, o networkprovisioner.Observed, policy networkprovisioner.Policy, err error) {
	policy = networkprovisioner.ConfigOf(record)
	policy.Now = p.Now()
	if d, err = networkprovisioner.Decode(objects); err != nil {
		return d, o, policy, err
	}
	links, err := hostnet.Open(hostnet.Options{})
	if err != nil {
		return d, o, policy, err
	}
	defer links.Close()
	o, err = p.Networks(links).Observe(ctx, d)
	return d, o, policy, err
}
