// Package adoption takes undeclared instances under declaration. It also
// exports declarations that change nothing when applied.
package adoption

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"hostler/agent/api"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// Adopter takes undeclared instances under declaration.
type Adopter struct {
	Store state.Backend
	// Types are the container types, sorted. Broker returns the broker of a type.
	Types  []spec.ContainerType
	Broker func(t spec.ContainerType) (containerbroker.Broker, error)
	// Host returns the host's record.
	Host      func(ctx context.Context) (spec.HostRecord, error)
	Namespace string
	NewToken  func() string
	Now       func() time.Time
}

func (a Adopter) find(ctx context.Context, t spec.ContainerType, instance string) (containerbroker.Instance, error) {
	broker, err := a.Broker(t)
	if err != nil {
		return containerbroker.Instance{}, err
	}
	all, err := broker.List(ctx, false)
	if err != nil {
		return containerbroker.Instance{}, err
	}
	for _, i := range all {
		if i.Name == instance {
			return i, nil
		}
	}
	return containerbroker.Instance{}, fault.New(fault.NotFound, "there is no %s instance named %q", t, instance)
}

// Inspect implements api.Adopter.
func (a Adopter) Inspect(ctx context.Context, t spec.ContainerType, instance string) (api.Adoptable, error) {
	i, err := a.find(ctx, t, instance)
	if err != nil {
		return api.Adoptable{}, err
	}
	if i.Stamp != nil && i.Stamp.Namespace != a.Namespace {
		return api.Adoptable{}, fault.New(fault.Conflict, "instance %q belongs to another agent (namespace %q): release it there first", instance, i.Stamp.Namespace)
	}
	if !spec.MachineName(i.Name) {
		return api.Adoptable{}, fault.New(fault.Invalid, "cannot take over instance %q: a machine has its instance's name, and this is not a name for a machine "+
			"(lower-case letters, digits and hyphens, a letter first); rename the instance with the hypervisor's tools", i.Name)
	}
	switch i.Status {
	case containerbroker.StatusRunning, containerbroker.StatusStopped, containerbroker.StatusFrozen:
	default:
		return api.Adoptable{}, fault.New(fault.NotReady, "cannot take over instance %q, which is %s, neither running nor stopped; "+
			"try again when it runs or is stopped", i.Name, i.Status)
	}
	machine := MachineOf(i, t)
	if why := undeclarable(i, machine); why != "" {
		if i.Odd == "" {
			why += "; change that with the hypervisor's tools"
		}
		return api.Adoptable{}, fault.New(fault.Invalid, "cannot take over instance %q, which cannot be declared: %s", i.Name, why)
	}
	found := api.Adoptable{Name: i.Name, Machine: machine, Token: a.NewToken()}
	if i.Stamp != nil {
		found.Seen = &api.Stamp{Namespace: i.Stamp.Namespace, UID: i.Stamp.UID, Token: i.Stamp.Token}
	}
	return a.restoreRecord(ctx, i, found)
}

// MachineOf returns the declaration that matches an instance. The declaration
// names the instance's image only if the hypervisor has its own images, e.g.
// LXD. The digest of a KVM machine's disk refers to no image.
func MachineOf(i containerbroker.Instance, t spec.ContainerType) spec.Machine {
	m := provisioner.Declared(i)
	m.Type, m.Image = t, spec.UnknownImage(t)
	if info, _ := t.Info(); info.OwnImages && i.ImageID != "" {
		m.Image = string(t) + ":" + i.ImageID
	}
	return m
}

// Stamp implements api.Adopter. It writes an intent with the stamp's token
// durably before the stamp, so that the provisioner recognises the token.
func (a Adopter) Stamp(ctx context.Context, t spec.ContainerType, found api.Adoptable, machine state.Object) error {
	broker, err := a.Broker(t)
	if err != nil {
		return err
	}
	stamper, ok := broker.(containerbroker.Stamper)
	if !ok {
		return fault.New(fault.Invalid, "cannot take over %s instances with this agent", t)
	}
	record, err := a.Host(ctx)
	if err != nil {
		return err
	}
	desired, err := provisioner.Decode([]state.Object{machine}, t, provisioner.ConfigOf(record, t))
	if err != nil {
		return err
	}
	stamp := desired[0].Machine.Stamp
	stamp.Token = found.Token
	intent := state.Intent{Token: stamp.Token, Object: machine.ID, UID: machine.UID, Action: "adopt", Began: a.Now(), Owner: string(t)}
	if err := a.Store.Begin(ctx, intent); err != nil {
		return fmt.Errorf("cannot write the intent to adopt: %w", err)
	}
	var seen *containerbroker.Stamp
	if found.Seen != nil {
		seen = &containerbroker.Stamp{Namespace: found.Seen.Namespace, UID: found.Seen.UID, Token: found.Seen.Token}
	}
	return fault.Explain(stamper.Stamp(ctx, found.Name, seen, stamp), "cannot stamp the instance")
}

// restoreRecord returns found with the uid and the settings that the orphan's
// stamp records. It returns found as it is if the recorded machine had
// networks, storage or published ports, because other machines may have these
// by now. A declaration also names only its own objects.
func (a Adopter) restoreRecord(ctx context.Context, i containerbroker.Instance, found api.Adoptable) (api.Adoptable, error) {
	var stamped provisioner.StampedRecord
	if i.Stamp == nil || json.Unmarshal([]byte(i.Stamp.Record), &stamped) != nil {
		return found, nil
	}
	was := stamped.Machine
	switch {
	case was.Type != found.Machine.Type, i.Stamp.UID == "", stamped.Name != "" && stamped.Name != i.Name:
		return found, nil
	case len(was.Networks)+len(was.Storage)+len(was.Publish) > 0:
		return found, nil
	}
	objects, _, err := a.Store.List(ctx, spec.KindMachine)
	if err != nil {
		return found, fmt.Errorf("cannot read the declarations: %w", err)
	}
	if slices.ContainsFunc(objects, func(o state.Object) bool { return o.Name == i.Name || o.UID == i.Stamp.UID }) {
		return found, nil // declared again as another machine
	}
	m := &found.Machine
	m.CloudInit, m.SSHKeys, m.Retain = was.CloudInit, was.SSHKeys, was.Retain
	if was.Image != "" {
		m.Image = was.Image
	}
	found.UID = i.Stamp.UID
	return found, nil
}
