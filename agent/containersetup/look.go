package containersetup

import (
	"context"
	"encoding/json"
	"fmt"

	"hostler/agent/spec"
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
}

// failedSince reports whether an operation failed since before.
func (s seen) failedSince(before map[string]int) bool {
	for name, count := range s.failures {
		if count > before[name] {
			return true
		}
	}
	return false
}

func (w *Worker) read(ctx context.Context) (s seen, err error) {
	objects, _, err := w.Store.List(ctx, spec.KindMachine, spec.KindHost, spec.KindContainerType)
	if err != nil {
		return s, fmt.Errorf("cannot read the declared machines: %w", err)
	}
	sweeps := false
	s.failures = map[string]int{}
	for _, o := range objects {
		switch o.Kind {
		case spec.KindMachine:
			var r spec.MachineRecord
			if err := json.Unmarshal(o.Spec, &r); err != nil {
				return s, fmt.Errorf("cannot read the record of machine/%s: %w", o.Name, err)
			}
			if r.Machine.Type != w.Type {
				continue
			}
			s.needed = true
			var status spec.MachineStatus
			if len(o.Status) > 0 && json.Unmarshal(o.Status, &status) == nil && status.Attempts.ErrorKind != "" {
				s.failures[o.Name] = status.Attempts.Count
			}
		case spec.KindHost:
			var r spec.HostRecord
			if err := json.Unmarshal(o.Spec, &r); err != nil {
				return s, fmt.Errorf("cannot read the host's record: %w", err)
			}
			sweeps = sweepsUnknown(r)
		case spec.KindContainerType:
			if o.Name != string(w.Type) {
				continue
			}
			s.generation = o.Generation
			if len(o.Status) > 0 {
				if err := json.Unmarshal(o.Status, &s.status); err != nil {
					return s, fmt.Errorf("cannot read the status of type/%s: %w", o.Name, err)
				}
			}
		}
	}
	s.needed = s.needed || sweeps && s.status.State == StateReady
	return s, nil
}

func sweepsUnknown(r spec.HostRecord) bool {
	mode := r.Harvest
	if mode == "" {
		mode = r.Config.Harvest
	}
	return mode == "unknown" || mode == "all"
}
