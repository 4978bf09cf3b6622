package containersetup

import (
	"context"
	"fmt"
	"sync"

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
	// removed means that a machine, perhaps of another type, was removed since the
	// last look.
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
	removed := w.touched.take()
	objects, _, err := w.Store.List(ctx, kinds()...)
	if err != nil {
		return s, fmt.Errorf("cannot read the declared machines: %w", err)
	}
	s.failures = map[string]int{}
	for _, o := range objects {
		switch o.Kind {
		case spec.KindMachine:
			delete(removed, o.Name)
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
	w.machines.Keep(objects)
	s.removed = len(removed) > 0
	err = reconcile.Configure(objects, func(r spec.HostRecord) {
		s.needed = s.needed || r.HarvestsUnknown() && s.status.State == StateReady
	})
	return s, err
}

// touched holds the names of the machines that changed since the last look. A
// machine may come and go between two looks.
type touched struct {
	mu    sync.Mutex
	names map[string]bool
}

func (t *touched) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names == nil {
		t.names = map[string]bool{}
	}
	t.names[name] = true
}

// take returns the names and forgets them.
func (t *touched) take() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := t.names
	t.names = nil
	return names
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
