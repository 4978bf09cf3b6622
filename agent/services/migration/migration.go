// Package migration says which machines can move to another container type.
package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"hostler/agent/client"
	"hostler/agent/migrate"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// Planner says what a migration would do.
type Planner struct {
	migrate.Hypervisors
	Store state.Backend
}

// Plan returns a step for each named machine, or for each machine of the type
// from if there are no names.
func (p Planner) Plan(ctx context.Context, from, to spec.ContainerType, names []string) ([]client.MigrationStep, error) {
	if err := spec.CheckMigration(from, to); err != nil {
		return nil, err
	}
	objects, _, err := p.Store.List(ctx, spec.KindMachine, spec.KindDeclaration)
	if err != nil {
		return nil, err
	}
	originals, err := p.instances(ctx, from)
	if err != nil {
		return nil, err
	}
	taken, err := p.instances(ctx, to)
	if err != nil {
		return nil, err
	}
	sources := map[string]string{}
	for _, o := range objects {
		var d spec.DeclarationRecord
		if o.Kind == spec.KindDeclaration && o.Decode(&d, nil) == nil {
			sources[o.Name] = d.Source
		}
	}
	steps := []client.MigrationStep{}
	found := map[string]bool{}
	for _, o := range objects {
		if o.Kind != spec.KindMachine || len(names) > 0 && !slices.Contains(names, o.Name) {
			continue
		}
		m := migrate.Machine{Object: o}
		if err := o.Decode(&m.Record, &m.Status); err != nil {
			return nil, err
		}
		if len(names) == 0 && m.Record.Machine.Type != from {
			continue
		}
		found[o.Name] = true
		step := client.MigrationStep{Machine: o.Name, UID: o.UID, Detail: "stays stopped", Refused: refused(m, from)}
		if made, there := taken[m.Instance()]; step.Refused == "" && there {
			switch {
			case made.Stamp == nil || made.Stamp.Namespace != p.Namespace || made.Stamp.UID != o.UID:
				step.Refused = fmt.Sprintf("%s has another instance named %q: rename or delete it", to, m.Instance())
			case migrate.InUse(made, originals[m.Instance()], m.Record.Migration.LastAttempt()):
				step.Refused = fmt.Sprintf("%s has an instance of this machine that may have data of its own: delete %[1]s/%s with the tools of %[1]s, or release the machine and adopt the instance", to, m.Instance())
			}
		}
		if step.Refused == "" {
			if err := p.Movable(ctx, from, m.Instance()); err != nil {
				step.Refused = err.Error()
			}
		}
		if m.Status.State == spec.MachineRunning {
			step.Detail = "stopped during the copy, then started in " + string(to)
		}
		if source := sources[m.Record.Declaration]; strings.HasPrefix(source, "/") {
			step.Detail += fmt.Sprintf("; afterwards change its type to %s in %s", to, source)
		}
		steps = append(steps, step)
	}
	for _, name := range names {
		if !found[name] {
			return nil, fault.New(fault.NotFound, "there is no machine %q", fault.Clip(name, 253))
		}
	}
	return steps, nil
}

// refused returns why a machine cannot be moved, or "".
func refused(m migrate.Machine, from spec.ContainerType) string {
	switch r := m.Record; {
	case r.Machine.Type != from:
		return "it is of type " + string(r.Machine.Type)
	case m.Life != state.Alive:
		return "it is being removed"
	case r.Migration.Open():
		return "its migration has begun already"
	case m.Status.Instance == nil, m.Status.State != spec.MachineRunning && m.Status.State != spec.MachineStopped:
		return "its instance is not as declared: it is " + string(m.Status.State)
	}
	if err := (&spec.Migration{From: from}).CheckImage(m.Record.Machine.Image); err != nil {
		return err.Error()
	}
	return ""
}

// instances returns the type's instances by name. A hypervisor that is not set up
// yet has no instances.
func (p Planner) instances(ctx context.Context, t spec.ContainerType) (map[string]containerbroker.Instance, error) {
	broker, err := p.Broker(t)
	if fault.Is(err, fault.NotReady) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := broker.List(ctx, false)
	named := map[string]containerbroker.Instance{}
	for _, i := range all {
		named[i.Name] = i
	}
	return named, err
}
