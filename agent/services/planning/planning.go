// Package planning predicts the effects of an apply for the API. It plans with
// the same functions as the workers.
package planning

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"hostler/agent/client"
	"hostler/agent/containersetup"
	"hostler/agent/declare"
	"hostler/agent/networkprovisioner"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
	"hostler/containerbroker"
	"hostler/hostnet"
	"hostler/initialisers"
)

// Planner implements api.Planner. It changes nothing.
type Planner struct {
	Store state.Backend
	Host  func(context.Context) (spec.HostRecord, error)
	// Types are the container types, sorted.
	Types []spec.ContainerType
	// Broker fails for a type whose hypervisor is not installed yet.
	Broker      func(spec.ContainerType) (containerbroker.Broker, error)
	Initialiser func(spec.ContainerType) initialisers.Initialiser
	Sources     storageprovisioner.Sources
	// Networks returns the observer of the host's networks. The observer reads
	// through links.
	Networks func(links *hostnet.Host) networkprovisioner.Eyes
	Images   Images
	// Limitless returns the notice that root disks of a type have no size limit on
	// this host, or "" if they have one.
	Limitless func(spec.ContainerType) string
	// StateDir is the agent's directory of images and records.
	StateDir string
	Now      func() time.Time
	Log      *slog.Logger
}

// Images finds the images of machines.
type Images interface {
	// Names returns the names and ids of the images in the hypervisor of a type.
	Names(ctx context.Context, t spec.ContainerType) []string
	// Check returns an error if an image for a type is not available, i.e. if
	// the agent's cache lacks it, own lacks it and no source offers it. own
	// holds the names of the hypervisor's images.
	Check(ctx context.Context, t spec.ContainerType, reference string, own []string) error
}

// Plan implements api.Planner. It makes one list call per container type with
// machines in scope and changes nothing. If a hypervisor does not answer, Plan
// fails only for a scope with machines of its type.
func (p Planner) Plan(ctx context.Context, machines []declare.Planned, scope map[string]bool) ([]client.Step, error) {
	record, err := p.Host(ctx)
	if err != nil {
		return nil, err
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
	ports := publishing(machines)
	for _, t := range p.Types {
		desired, err := provisioner.Decode(objects, t, provisioner.ConfigOf(record, t))
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(desired, func(d provisioner.Desired) bool { return scope[spec.KindMachine+"/"+d.Name] }) {
			continue
		}
		more, err := p.planType(ctx, t, desired, record)
		if err != nil {
			return nil, err
		}
		for _, d := range desired {
			if step, changes := ports[d.Name]; changes && d.Life == state.Alive {
				more = append(more, step)
			}
		}
		steps = append(steps, withoutBookkeeping(more)...)
	}
	return steps, nil
}

func (p Planner) planType(ctx context.Context, t spec.ContainerType, desired []provisioner.Desired, record spec.HostRecord) ([]client.Step, error) {
	observed := provisioner.Observed{Complete: true}
	var differ containerbroker.Differ
	broker, missing := p.Broker(t)
	if missing == nil {
		var err error
		differ = broker.(containerbroker.Differ)
		if observed.Instances, err = broker.List(ctx, false); err != nil {
			return nil, fmt.Errorf("cannot plan: %w", err)
		}
	}
	if err := p.catchUp(ctx, desired, &observed); err != nil {
		return nil, err
	}
	steps, err := p.preparation(ctx, t, missing == nil)
	if err != nil {
		return nil, err
	}
	config := provisioner.ConfigOf(record, t)
	provisioner.MarkNotAutostarted(desired, observed.Instances, config.Owner(), config.Host.Boot)
	for _, s := range provisioner.Plan(desired, observed, provisioner.Policy{
		// NudgeAll makes the plan show all remaining steps, including delayed
		// ones.
		Type: t, Namespace: config.Namespace, Lineage: config.Lineage, Withheld: config.Withheld, Harvest: config.Harvest, Nudged: provisioner.NudgeAll(), AssumeReady: true,
		Diff: func(m containerbroker.Machine, i containerbroker.Instance) []containerbroker.Change {
			return differ.Diff(m, i)
		},
	}) {
		if s.Visible() {
			steps = append(steps, stepView(s))
		}
	}
	return steps, nil
}

// catchUp reads the intents, and the statuses of machines whose instances the
// provisioner has recorded since the machines were read. It must be called after
// the listing of the instances. The provisioner makes an instance after it began
// an intent, and ends the intent after it recorded the instance. So each of its
// instances is then known by its intent or by its record.
func (p Planner) catchUp(ctx context.Context, desired []provisioner.Desired, observed *provisioner.Observed) error {
	var err error
	if observed.Intents, err = p.Store.Intents(ctx); err != nil {
		return fmt.Errorf("cannot read the journal: %w", err)
	}
	tokens := make(map[string]string, len(observed.Instances)) // by uid
	for _, i := range observed.Instances {
		if i.Stamp != nil {
			tokens[i.Stamp.UID] = i.Stamp.Token
		}
	}
	var late []*provisioner.Desired
	for i := range desired {
		d := &desired[i]
		if token, there := tokens[d.UID]; there && (d.Status.Instance == nil || d.Status.Instance.Token != token) {
			late = append(late, d)
		}
	}
	if len(late) == 0 {
		return nil
	}
	machines, _, err := p.Store.List(ctx, spec.KindMachine)
	if err != nil {
		return fmt.Errorf("cannot read the machines: %w", err)
	}
	for _, d := range late {
		at := slices.IndexFunc(machines, func(o state.Object) bool { return o.UID == d.UID })
		var now spec.MachineStatus
		if at >= 0 && json.Unmarshal(machines[at].Status, &now) == nil && now.Instance != nil {
			d.Status = now
		}
	}
	return nil
}

// preparation returns the steps that prepare the host for machines of a type.
// If the hypervisor exists (there) and the type was ready before, preparation
// returns nil without a check, because the check takes several calls. If the
// host cannot run the type, the step says why.
func (p Planner) preparation(ctx context.Context, t spec.ContainerType, there bool) ([]client.Step, error) {
	if there {
		types, _, err := p.Store.List(ctx, spec.KindContainerType)
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
	init := p.Initialiser(t)
	ok, why := init.Satisfied(ctx)
	if ok {
		return nil, nil
	}
	if supported, reason := init.Supported(ctx); !supported {
		why = reason
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
		Detail: s.Detail, Held: cmp.Or(s.Held, s.Waiting), Allow: s.Allow, Changes: slices.Clone(s.Changes),
	}
	if s.Action == provisioner.ActionHarvest {
		view.Action = string(provisioner.ActionDelete)
	}
	return view
}
