package workerapi

import (
	"context"
	"encoding/json"
	"slices"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// config answers with the host's configuration as last read.
func (c *call) config() error {
	o, err := c.store.Get(c.r.Context(), state.ID{Kind: spec.KindHost, Name: spec.HostName})
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotReady, "the host's configuration was not read yet")
	}
	if err != nil {
		return err
	}
	var record spec.HostRecord
	if err := json.Unmarshal(o.Spec, &record); err != nil {
		return fault.New(fault.NeedsOperator, "cannot read the host's record: %v", err)
	}
	answer(c.w, record.Config)
	return nil
}

// types returns the container types that the caller may declare.
func (c *call) types() []spec.ContainerType {
	if c.t != "" {
		return []spec.ContainerType{c.t}
	}
	var all []spec.ContainerType
	for _, t := range spec.ContainerTypes() {
		all = append(all, t.Type)
	}
	return all
}

func typeID(t spec.ContainerType) state.ID {
	return state.ID{Kind: spec.KindContainerType, Name: string(t)}
}

func (c *call) supported() error {
	out := Types{Types: []spec.ContainerType{}}
	for _, t := range c.types() {
		o, err := c.h.o.Backend.Get(c.r.Context(), typeID(t))
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		status, err := typeStatus(o)
		if err != nil {
			return err
		}
		if status.Supported != nil && *status.Supported {
			out.Types = append(out.Types, t)
		}
	}
	answer(c.w, out)
	return nil
}

func typeStatus(o state.Object) (spec.TypeStatus, error) {
	var status spec.TypeStatus
	if len(o.Status) > 0 {
		if err := json.Unmarshal(o.Status, &status); err != nil {
			return status, fault.New(fault.NeedsOperator, "cannot read the status of type/%s: %v", o.Name, err)
		}
	}
	return status, nil
}

// setSupported stores which types the host can run; the caller's other types
// are stored as not supported.
func (c *call) setSupported() error {
	var in Types
	if err := raw.Decode(c.r, &in); err != nil {
		return err
	}
	errs := map[spec.ContainerType]error{}
	for _, t := range c.types() {
		errs[t] = c.declareSupported(t, slices.Contains(in.Types, t))
	}
	out := Results{Results: make([]Result, len(in.Types))}
	for i, t := range in.Types {
		err, ok := errs[t]
		if !ok {
			err = fault.New(fault.Forbidden, "you may not speak of the type %q", raw.Clip(string(t), 16))
		}
		if err != nil {
			out.Results[i] = resultOf(state.Object{}, err)
		}
		delete(errs, t)
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	answer(c.w, out)
	return nil
}

func (c *call) declareSupported(t spec.ContainerType, supported bool) error {
	for try := 1; ; try++ {
		w := state.Write{ID: typeID(t)}
		o, err := c.h.o.Backend.Get(c.r.Context(), w.ID)
		status := spec.TypeStatus{State: "absent"}
		if err == nil {
			w.Revision = o.Revision
			status, err = typeStatus(o)
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		status.Supported = &supported
		w.Status = spec.Encode(status)
		_, err = c.h.o.Backend.Write(c.r.Context(), state.Atomic, w)
		if try == writeTries || !fault.Is(err, fault.Conflict) {
			return err
		}
	}
}

// transient answers with the machines without an instance whose last error is
// transient.
func (c *call) transient() error {
	objects, _, err := c.store.List(c.r.Context(), spec.KindMachine)
	if err != nil {
		return err
	}
	out := TransientMachines{Machines: []TransientMachine{}}
	for _, o := range objects {
		var status spec.MachineStatus
		if len(o.Status) == 0 || json.Unmarshal(o.Status, &status) != nil {
			continue
		}
		a := status.Attempts
		if o.Life == state.Alive && status.Instance == nil && status.State == spec.MachineError && a.ErrorKind == string(fault.Transient) {
			out.Machines = append(out.Machines, TransientMachine{o.Name, status.Message, a.Count, a.NextRetry})
		}
	}
	answer(c.w, out)
	return nil
}

func (c *call) keep() error {
	return c.eachMachine(func(record spec.MachineRecord, m *Machine) error {
		m.Keep = record.Machine.Retain || record.Released
		return nil
	})
}

// hostChanges is a dry run: it returns the missing networks and creates none.
func (c *call) hostChanges() error {
	return c.eachMachine(func(record spec.MachineRecord, m *Machine) error {
		for _, nic := range record.Machine.Networks {
			if nic.Network == "" || slices.Contains(m.Networks, nic.Network) {
				continue
			}
			_, err := c.h.o.Backend.Get(c.r.Context(), state.ID{Kind: spec.KindNetwork, Name: nic.Network})
			if fault.Is(err, fault.NotFound) {
				m.Networks = append(m.Networks, nic.Network)
			} else if err != nil {
				return err
			}
		}
		slices.Sort(m.Networks)
		return nil
	})
}

// eachMachine answers for each named machine, in the same order.
func (c *call) eachMachine(f func(spec.MachineRecord, *Machine) error) error {
	var in Machines
	if err := raw.Decode(c.r, &in); err != nil {
		return err
	}
	out := MachineAnswers{Machines: make([]Machine, len(in.Machines))}
	for i, name := range in.Machines {
		m := &out.Machines[i]
		m.Name = name
		o, err := c.store.Get(c.r.Context(), state.ID{Kind: spec.KindMachine, Name: name})
		var record spec.MachineRecord
		if err == nil {
			err = json.Unmarshal(o.Spec, &record)
		}
		if err == nil {
			err = f(record, m)
		}
		if err != nil {
			m.Error, m.Kind = err.Error(), fault.KindOf(err)
		}
	}
	answer(c.w, out)
	return nil
}

// ensureImage makes the agent prepare an image, for which a worker in its own
// process lacks the rights. The reference must be the image of a declared
// machine of the type, because the agent reads files and contacts servers for
// it.
func (c *call) ensureImage() error {
	if c.t == "" {
		return fault.New(fault.Invalid, "cannot make an image usable: name one container type")
	}
	var req client.ImageRequest
	c.h.o.Streams.ImageWork(c.w, c.r, &req, func(ctx context.Context, report func(client.Progress)) (client.Image, error) {
		if req.Reference == "" {
			return client.Image{}, fault.New(fault.Invalid, "cannot make an image usable: a reference is needed")
		}
		if declared, err := c.h.named.declares(ctx, c.store, c.t, req.Reference); err != nil {
			return client.Image{}, err
		} else if !declared {
			return client.Image{}, fault.New(fault.Forbidden, "cannot make image %q usable: no %s machine is declared with it", raw.Clip(req.Reference, 256), c.t)
		}
		id, err := c.h.o.Ensure(ctx, c.t, req.Reference, report)
		return client.Image{Reference: req.Reference, Digest: id, Where: string(c.t), UsedBy: []string{}}, err
	})
	return nil
}

// counts adds a type's passes and operations to the agent's metrics.
func (c *call) counts() error {
	var in Counts
	if err := raw.Decode(c.r, &in); err != nil {
		return err
	}
	if c.t == "" {
		return fault.New(fault.Invalid, "cannot count: name one container type")
	}
	if len(in.Passes) > MaxCounts || len(in.Operations) > MaxCounts {
		return fault.New(fault.Invalid, "cannot count: at most %d passes and operations are told at once", MaxCounts)
	}
	for _, n := range slices.Concat(in.Passes, in.Operations) {
		if n.Seconds < 0 {
			return fault.New(fault.Invalid, "cannot count: nothing takes %v seconds", n.Seconds)
		}
	}
	if c.h.o.Count != nil {
		c.h.o.Count(c.t, in)
	}
	answer(c.w, struct{}{})
	return nil
}
