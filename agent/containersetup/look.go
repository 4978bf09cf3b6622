package containersetup

import (
	"context"
	"fmt"
	"slices"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
)

// seen is the result of reading the records.
type seen struct {
	// needed means that a machine of the type is recorded, or that the type was
	// ready before and the harvest mode asks to find stamped instances without a
	// record.
	needed bool
	// status and generation belong to the type's object.
	status     spec.TypeStatus
	generation int64
	// failures are the failed attempts of the type's machines, by name.
	failures map[string]int
	// removed means that a machine of the type was removed since the last look.
	removed bool
}

// failedSince reports whether an operation failed after the failures in before.
func (s seen) failedSince(before map[string]int) bool {
	for name, count := range s.failures {
		if count > before[name] {
			return true
		}
	}
	return false
}

// kinds are the kinds of objects that the worker reads and watches.
func kinds() []string { return []string{spec.KindMachine, spec.KindHost, spec.KindContainerType} }

func (w *Worker) read(ctx context.Context) (s seen, err error) {
	objects, _, err := w.Store.List(ctx, kinds()...)
	if err != nil {
		return s, fmt.Errorf("cannot read the declared machines: %w", err)
	}
	s.failures = map[string]int{}
	for _, o := range objects {
		switch o.Kind {
		case spec.KindMachine:
			m, err := w.machines.Decode(o, w.decode)
			if err != nil {
				return s, err
			}
			s.needed = s.needed || m.needs
			if m.failures > 0 {
				s.failures[o.Name] = m.failures
			}
		case spec.KindContainerType:
			if o.Name != string(w.Type) {
				continue
			}
			s.generation = o.Generation
			if err := o.Decode(nil, &s.status); err != nil {
				return s, err
			}
		}
	}
	s.removed = slices.ContainsFunc(w.machines.Keep(objects), func(m machine) bool { return m.needs })
	err = reconcile.Configure(objects, func(r spec.HostRecord) {
		s.needed = s.needed || r.HarvestsUnknown() && s.status.State == StateReady
	})
	return s, err
}

// machine is the part of a machine's record that the worker needs.
type machine struct {
	needs    bool // needs the type
	failures int  // failed attempts of a machine of the type
}

func (w *Worker) decode(o state.Object) (m machine, err error) {
	var r spec.MachineRecord
	if err := o.Decode(&r, nil); err != nil {
		return m, err
	}
	m.needs = r.Needs(w.Type)
	var status spec.MachineStatus
	if r.Machine.Type == w.Type && o.Decode(nil, &status) == nil && status.Attempts.ErrorKind != "" {
		m.failures = status.Attempts.Count
	}
	return m, nil
}
