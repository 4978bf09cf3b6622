package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"hostler/agent/api/raw"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// dependency is a network, volume or filesystem that machines use. The three
// kinds are declared, changed and removed alike.
type dependency struct {
	before      *state.Object // nil: new
	declaration string
	was, now    json.RawMessage
	life        state.Life
	held        spec.Hold
	// holds is the hold in was.
	holds spec.Hold
}

// dependencyKinds are the kinds of dependencies.
var dependencyKinds = []string{spec.KindFilesystem, spec.KindNetwork, spec.KindVolume}

// dependenciesOf returns the records for a document's networks, volumes and
// filesystems.
func dependenciesOf(doc document) map[state.ID]any {
	all := map[state.ID]any{}
	for name, n := range doc.decl.Networks {
		all[state.ID{Kind: spec.KindNetwork, Name: name}] = spec.NetworkRecord{Header: spec.Header{Declaration: doc.name}, Network: n, Confirm: doc.confirm}
	}
	for name, v := range doc.decl.Volumes {
		all[state.ID{Kind: spec.KindVolume, Name: name}] = spec.VolumeRecord{Header: spec.Header{Declaration: doc.name}, Volume: v}
	}
	for name, f := range doc.decl.Filesystems {
		all[state.ID{Kind: spec.KindFilesystem, Name: name}] = spec.FilesystemRecord{Header: spec.Header{Declaration: doc.name}, Filesystem: f}
	}
	return all
}

// carryOver copies requests of the user that are not part of the declaration
// into a changed record.
func carryOver(id state.ID, was json.RawMessage, record any) (any, error) {
	var err error
	switch r := record.(type) {
	case spec.NetworkRecord:
		var old spec.NetworkRecord
		err = json.Unmarshal(was, &old)
		r.RetryRequest = old.RetryRequest
		if same(old.Network, r.Network) {
			// Consent and the wait for confirmation hold only as long as the declared
			// network stays the same.
			r.Allow, r.Confirm = old.Allow, old.Confirm
		}
		record = r
	case spec.VolumeRecord:
		var old spec.VolumeRecord
		err = json.Unmarshal(was, &old)
		r.RetryRequest, r.Force, r.Released, r.Restored = old.RetryRequest, old.Force, old.Released, old.Restored
		record = r
	case spec.FilesystemRecord:
		var old spec.FilesystemRecord
		err = json.Unmarshal(was, &old)
		r.RetryRequest, r.Force, r.Released, r.Restored = old.RetryRequest, old.Force, old.Released, old.Restored
		record = r
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s/%s: %w", id.Kind, id.Name, err)
	}
	return record, nil
}

// newDependency decodes a network, volume or filesystem.
func newDependency(o state.Object) (*dependency, error) {
	var record struct {
		Declaration string    `json:"declaration"`
		Held        spec.Hold `json:"held"`
	}
	if err := decodeObject(o, &record, nil); err != nil {
		return nil, err
	}
	g := &dependency{before: &o, declaration: record.Declaration, now: o.Spec, life: o.Life, held: record.Held, holds: record.Held}
	// An earlier version may have written the fields in another order.
	err := g.change(o.ID, func(*spec.NetworkRecord) {}, func(*spec.VolumeRecord) {}, func(*spec.FilesystemRecord) {})
	g.was = g.now
	return g, err
}

// declareDependency creates or changes a network, volume or filesystem that a
// document declares.
func (w *declaredState) declareDependency(id state.ID, record any, declaration string) error {
	g := w.dependencies[id]
	w.users = nil
	if g == nil {
		w.dependencies[id] = &dependency{declaration: declaration, now: spec.Encode(record), life: state.Alive}
		return nil
	}
	if g.life != state.Alive {
		return nil // created again after the removal
	}
	record, err := carryOver(id, g.was, record)
	if err != nil {
		return err
	}
	g.declaration, g.now, g.held = declaration, spec.Encode(record), ""
	return nil
}

// hold marks a network, volume or filesystem that no document declares.
func (g *dependency) hold(id state.ID, h spec.Hold) error {
	g.held = h
	return g.change(id, func(r *spec.NetworkRecord) { r.Held = h }, func(r *spec.VolumeRecord) { r.Held = h }, func(r *spec.FilesystemRecord) { r.Held = h })
}

// change changes a record by the function for its kind.
func (g *dependency) change(id state.ID, network func(*spec.NetworkRecord), volume func(*spec.VolumeRecord), filesystem func(*spec.FilesystemRecord)) error {
	var err error
	switch id.Kind {
	case spec.KindNetwork:
		g.now, err = changed(g.now, network)
	case spec.KindVolume:
		g.now, err = changed(g.now, volume)
	default:
		g.now, err = changed(g.now, filesystem)
	}
	if err != nil {
		return fmt.Errorf("cannot read %s/%s: %w", id.Kind, id.Name, err)
	}
	return nil
}

func changed[R any](raw json.RawMessage, change func(*R)) (json.RawMessage, error) {
	var r R
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	change(&r)
	return spec.Encode(r), nil
}

// retryDependency requests a new attempt at a network, volume or filesystem,
// even if it is being removed. With force, that attempt detaches storage even
// if a process holds it.
func (w *declaredState) retryDependency(id state.ID, force bool) error {
	g := w.dependencies[id]
	if g == nil {
		return fault.New(fault.NotFound, "%s/%s is not there", id.Kind, raw.Clip(id.Name, 64))
	}
	return g.change(id,
		func(r *spec.NetworkRecord) { r.RetryRequest++ },
		func(r *spec.VolumeRecord) { r.RetryRequest, r.Force = r.RetryRequest+1, force },
		func(r *spec.FilesystemRecord) { r.RetryRequest, r.Force = r.RetryRequest+1, force })
}

// allowNetworks allows the impacts for the changed networks of the documents
// and for those in held.
func (w *declaredState) allowNetworks(impacts []string, docs []document, held map[string]bool) error {
	for _, doc := range docs {
		for name := range doc.decl.Networks {
			g := w.dependencies[state.ID{Kind: spec.KindNetwork, Name: name}]
			if g.before == nil || !held[name] && bytes.Equal(g.was, g.now) {
				continue
			}
			var record spec.NetworkRecord
			if err := json.Unmarshal(g.now, &record); err != nil {
				return fmt.Errorf("cannot read network/%s: %w", name, err)
			}
			record.Allow = slices.Compact(slices.Sorted(slices.Values(impacts)))
			g.now = spec.Encode(record)
		}
	}
	return nil
}

// dependencyWrites returns the changes to networks and storage.
func (w *declaredState) dependencyWrites() []state.Write {
	var all []state.Write
	for _, id := range sortedIDs(w.dependencies) {
		g := w.dependencies[id]
		wr := state.Write{ID: id}
		if g.before == nil {
			wr.Spec = g.now
			all = append(all, wr)
			continue
		}
		wr.Revision, wr.UID = state.AnyRevision, g.before.UID
		if !bytes.Equal(g.was, g.now) {
			wr.Spec = g.now
		}
		if g.life != g.before.Life {
			wr.Life = g.life
		}
		if wr.Spec != nil || wr.Life != "" {
			all = append(all, wr)
		}
	}
	return all
}

// plannedDependencies returns the networks and the storage for the planner.
func (w *declaredState) plannedDependencies() []PlannedObject {
	var all []PlannedObject
	for _, id := range sortedIDs(w.dependencies) {
		g := w.dependencies[id]
		p := PlannedObject{Before: g.before, After: state.Object{ID: id, Generation: 1}}
		if g.before != nil {
			p.After = *g.before
			if g.life == state.Alive && g.held != "" && g.holds == "" {
				all = append(all, p) // a hold does not affect the host
				continue
			}
			if g.life != g.before.Life || !bytes.Equal(g.was, g.now) {
				p.After.Generation++
			}
		}
		if p.After.Life = g.life; g.before == nil || !bytes.Equal(g.was, g.now) {
			p.After.Spec = g.now
		}
		all = append(all, p)
	}
	return all
}

func sortedIDs[T any](m map[state.ID]T) []state.ID {
	return slices.SortedFunc(maps.Keys(m), func(a, b state.ID) int {
		return bytes.Compare([]byte(a.Kind+"/"+a.Name), []byte(b.Kind+"/"+b.Name))
	})
}
