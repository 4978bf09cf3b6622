package adoption

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// Export implements api.Exporter. It returns a declaration as YAML that changes
// nothing when applied. If declaration is "", Export returns one document with
// all objects and undeclared instances, e.g. to move to another host. This
// document has the name of the only declaration, or "exported" if there are
// several. missing names the hypervisors whose instances the document lacks
// because Export could not list them.
func (a Adopter) Export(ctx context.Context, declaration string) (text []byte, missing []string, err error) {
	objects, _, err := a.Store.List(ctx, spec.KindDeclaration, spec.KindMachine)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the declarations: %w", err)
	}
	all, err := declared(objects)
	if err != nil {
		return nil, nil, err
	}
	if declaration != "" {
		d, ok := all[declaration]
		if !ok {
			return nil, nil, fault.New(fault.NotFound, "declaration/%s is not there", declaration)
		}
		return spec.EncodeYAML(d), nil, nil
	}
	names := slices.Sorted(maps.Keys(all))
	whole := spec.Declaration{Version: 1, Name: "exported"}
	if len(names) == 1 {
		whole.Name = names[0]
	}
	for _, name := range names {
		d := all[name]
		whole.Networks = joined(whole.Networks, d.Networks)
		whole.Volumes = joined(whole.Volumes, d.Volumes)
		whole.Filesystems = joined(whole.Filesystems, d.Filesystems)
		whole.Machines = joined(whole.Machines, d.Machines)
	}
	var notes []string
	if len(names) > 1 {
		notes = append(notes, fmt.Sprintf("The objects of the declarations %s; `hostler export NAME` writes a single declaration.", strings.Join(names, ", ")))
	}
	for _, t := range a.Types {
		leftOut, err := a.exportForeign(ctx, t, &whole)
		if err != nil {
			missing = append(missing, oneline.Clean(fmt.Sprintf("undeclared instances on %s are missing: %v", t, err), 1024))
		}
		notes = append(notes, leftOut...)
	}
	text = spec.EncodeYAML(whole)
	if notes = append(notes, missing...); len(notes) == 0 {
		return text, nil, nil
	}
	header, rest, _ := bytes.Cut(text, []byte("\n"))
	return slices.Concat(header, []byte("\n# "+strings.Join(notes, "\n# ")+"\n"), rest), missing, nil
}

// declared returns the declarations by name. If a machine's declaration is
// missing, e.g. after the loss of a store, declared adds a declaration with
// this name and the machine.
func declared(objects []state.Object) (map[string]spec.Declaration, error) {
	all := map[string]spec.Declaration{}
	for _, o := range objects {
		if o.Kind != spec.KindDeclaration {
			continue
		}
		var record spec.DeclarationRecord
		if err := json.Unmarshal(o.Spec, &record); err != nil {
			return nil, fault.New(fault.NeedsOperator, "cannot read declaration/%s: %v", o.Name, err)
		}
		all[o.Name] = record.Document
	}
	for _, o := range objects {
		if o.Kind != spec.KindMachine || o.Life != state.Alive {
			continue
		}
		var record spec.MachineRecord
		if err := json.Unmarshal(o.Spec, &record); err != nil {
			return nil, fault.New(fault.NeedsOperator, "cannot read machine/%s: %v", o.Name, err)
		}
		d, ok := all[record.Declaration]
		if !ok {
			d = spec.Declaration{Version: 1, Name: record.Declaration}
		}
		if _, ok := d.Machines[o.Name]; !ok {
			d.Machines = joined(d.Machines, map[string]spec.Machine{o.Name: record.Machine})
			all[record.Declaration] = d
		}
	}
	return all, nil
}

// joined returns a new map with the entries of a and b. If both have a key, the
// entry of b counts. Without any entries it returns nil.
func joined[V any](a, b map[string]V) map[string]V {
	if len(a)+len(b) == 0 {
		return nil
	}
	both := make(map[string]V, len(a)+len(b))
	maps.Copy(both, a)
	maps.Copy(both, b)
	return both
}

// exportForeign adds the undeclared instances to d. It returns a note for each
// instance that it leaves out because no declaration can describe the instance.
func (a Adopter) exportForeign(ctx context.Context, t spec.ContainerType, d *spec.Declaration) (leftOut []string, err error) {
	broker, err := a.Broker(t)
	if fault.Is(err, fault.NotReady) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := broker.List(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		if _, declared := d.Machines[i.Name]; declared || i.Stamp != nil {
			continue
		}
		machine := MachineOf(i, t)
		if why := undeclarable(i, machine); why != "" {
			leftOut = append(leftOut, fmt.Sprintf("%s/%s is not here: %s", t, oneline.Clean(i.Name, 64), why))
			continue
		}
		d.Machines = joined(d.Machines, map[string]spec.Machine{i.Name: machine})
	}
	return leftOut, nil
}

// undeclarable returns the reason why an instance cannot be declared as machine
// m, or "" if it can.
func undeclarable(i containerbroker.Instance, m spec.Machine) string {
	if i.Odd != "" {
		return i.Odd
	}
	_, err := spec.Parse("exported", spec.EncodeYAML(spec.Declaration{Version: 1, Machines: map[string]spec.Machine{i.Name: m}}))
	if err == nil {
		return ""
	}
	text := err.Error()
	if wrong := (spec.Errors)(nil); errors.As(err, &wrong) && len(wrong) > 0 {
		text = wrong[0].Message
	}
	return oneline.Clean(text, 200)
}
