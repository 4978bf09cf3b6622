package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// This file decides which writes follow from declaring, deleting and releasing
// objects. It is pure: from a declaredState it computes writes.

// isFile reports whether a declaration's source is a file of conf.d. Such a
// file owns its objects.
func isFile(source string) bool {
	return source != spec.SourceApply && source != spec.SourceStamps
}

// declaredState is the declared state at the time of a reading.
type declaredState struct {
	declarations map[string]*declared
	machines     map[string]*machineObject
	dependencies map[state.ID]*dependency
	// owners maps each object (KIND/NAME) that a document declares to the name of
	// the declaration.
	owners map[string]string
	// users maps each object (KIND/NAME) to the objects that refer to it; nil: to
	// be computed again, since a record changed. See usersOf.
	users map[string][]string
	// making holds the uids for which an instance may be in creation.
	making map[string]bool
	// obeyed: removals need no consent (hostler.yaml, "removals: obey").
	obeyed bool
	// most is the maximum number of machines of the host, began their number at
	// the reading.
	most, began int
}

// declared is a declaration; gone marks it for removal.
type declared struct {
	object state.Object // Revision 0: new
	record spec.DeclarationRecord
	gone   bool
}

// machineObject is a machine object.
type machineObject struct {
	before *state.Object // nil: new
	was    spec.MachineRecord
	record spec.MachineRecord
	life   state.Life
	uid    string // uid for a new machine, if it must be a known uid
	// renamed is the object of the machine's former name.
	renamed *state.Object
}

// notAutostarted reports that the machine has not been started since the host
// booted.
func (k *machineObject) notAutostarted() bool {
	status, known := k.status()
	return known && status.NotAutostarted()
}

// frozen reports that a machine that should run has a suspended instance.
func (k *machineObject) frozen() bool {
	status, known := k.status()
	wanted := k.was.Machine.WantsRunning()
	if o := k.was.PowerOverride; o != nil {
		wanted = *o
	}
	return known && wanted && status.State == spec.MachineStopped && !status.NotAutostarted()
}

func (k *machineObject) status() (status spec.MachineStatus, known bool) {
	known = k.before != nil && json.Unmarshal(k.before.Status, &status) == nil
	return status, known
}

// newDeclaredState decodes the declared objects and their declarations.
func newDeclaredState(objects []state.Object) (*declaredState, error) {
	w := &declaredState{declarations: map[string]*declared{}, machines: map[string]*machineObject{}, dependencies: map[state.ID]*dependency{}, making: map[string]bool{}}
	for _, o := range objects {
		switch o.Kind {
		case spec.KindDeclaration:
			d := &declared{object: o}
			if err := json.Unmarshal(o.Spec, &d.record); err != nil {
				return nil, fmt.Errorf("cannot read declaration/%s: %w", o.Name, err)
			}
			w.declarations[o.Name] = d
		case spec.KindMachine:
			k := &machineObject{before: &o, life: o.Life}
			if err := json.Unmarshal(o.Spec, &k.was); err != nil {
				return nil, fmt.Errorf("cannot read machine/%s: %w", o.Name, err)
			}
			k.record = k.was
			w.machines[o.Name] = k
		case spec.KindNetwork, spec.KindVolume, spec.KindFilesystem:
			g, err := newDependency(o)
			if err != nil {
				return nil, err
			}
			w.dependencies[o.ID] = g
		case spec.KindHost:
			var r spec.HostRecord
			if err := decodeObject(o, &r, nil); err != nil {
				return nil, err
			}
			w.obeyed, w.most = r.Config.Removals == spec.RemovalsObey, r.Config.MaxMachines
		}
	}
	w.mergeAlone()
	w.began = w.count()
	return w, nil
}

// document is a declaration that should be in force.
type document struct {
	name, source string
	// place names the document in messages, from is the absolute path of the
	// applied file.
	place, from string
	decl        spec.Declaration
	text        []byte
	lines       map[string]int
	// confirm is how long a change of the host's own network waits for
	// confirmation.
	confirm spec.Duration
}

// checkSources refuses to replace a declaration from another source.
func (w *declaredState) checkSources(docs []document, replace bool) error {
	seen := map[string]string{}
	for i, doc := range docs {
		if other, twice := seen[doc.name]; twice {
			return fault.New(fault.Invalid, "cannot apply: %s and %s are both the declaration %s; give either another `name:`", other, doc.place, doc.name)
		}
		seen[doc.name] = doc.place
		d := w.declarations[doc.name]
		switch {
		case d == nil || d.record.Source == spec.SourceStamps:
		case isFile(d.record.Source) && same(d.record.Document, doc.decl):
			// The content equals the file: the file keeps its declaration, but the
			// request can allow a held step.
			docs[i].source, docs[i].lines = d.record.Source, d.record.Lines
		case isFile(d.record.Source):
			return fault.New(fault.Conflict, "cannot apply %s: that declaration comes from %s; edit that file", doc.name, d.record.Source)
		case doc.from == "":
			docs[i].from = d.record.From
		case d.record.From != "" && d.record.From != doc.from && !replace:
			return fault.New(fault.Conflict, "cannot apply %s: the declaration %s was applied from %s; give this document another `name:`, or replace that declaration with --replace",
				doc.from, doc.name, d.record.From)
		}
	}
	return nil
}

func names(docs []document) string {
	var all []string
	for _, d := range docs {
		all = append(all, d.name)
	}
	return strings.Join(all, ", ")
}

// declareMachine creates or changes a machine that a document declares. byHand:
// the document is being applied, as opposed to being already in force.
func (w *declaredState) declareMachine(name string, m spec.Machine, doc document, byHand bool) {
	k := w.machines[name]
	w.users = nil
	switch {
	case k == nil:
		w.machines[name] = &machineObject{record: spec.MachineRecord{Header: spec.Header{Declaration: doc.name}, Machine: m}, life: state.Alive}
		return
	case k.life != state.Alive:
		return // created again after the removal
	}
	changed := !same(k.was.Machine, m)
	if changed {
		// The consent was given for the former declaration of the machine.
		k.record.Allow = nil
	}
	if changed || byHand {
		// The agent reads files again at every start, which must not start a machine
		// that the user stopped.
		k.record.PowerOverride = nil
		if k.notAutostarted() && m.WantsRunning() {
			k.record.PowerOverride = new(true)
		}
	}
	if doc.source != spec.SourceStamps {
		k.record.GuestLost = false
	}
	k.record.Declaration, k.record.Machine, k.record.Held = doc.name, m, ""
}

// isPending reports that the provisioner has not yet carried out the last
// declaration of a machine, so a step that needs consent may still come up.
func (k *machineObject) isPending() bool {
	status, known := k.status()
	return !known || status.ObservedGeneration != k.before.Generation ||
		status.State == spec.MachinePending || status.State == spec.MachineProvisioning
}

// allow allows the impacts for the changed machines of the documents and for
// those in held.
func (w *declaredState) allow(impacts []string, docs []document, held map[string]bool) {
	impacts = slices.Compact(slices.Sorted(slices.Values(impacts)))
	if len(impacts) == 0 {
		return
	}
	for _, doc := range docs {
		for name := range doc.decl.Machines {
			k := w.machines[name]
			switch {
			case k.before == nil:
			case held[name], !same(k.was, k.record):
				k.record.Consent(impacts)
			case k.isPending() && slices.Contains(impacts, "restart"):
				// A restart loses no data; a recreate can only be allowed once it is
				// planned.
				k.record.Consent([]string{"restart"})
			}
		}
	}
}

// writes returns the changes; unchanged objects have none. Machines are matched
// by uid and not by revision: every status write changes the revision, while
// only the holder of the declaring lock writes specs.
func (w *declaredState) writes() []state.Write {
	var all []state.Write
	for _, name := range slices.Sorted(maps.Keys(w.declarations)) {
		d := w.declarations[name]
		wr := state.Write{ID: state.ID{Kind: spec.KindDeclaration, Name: name}, Revision: d.object.Revision, UID: d.object.UID}
		switch {
		case d.gone && d.object.Revision == 0:
			continue
		case d.gone:
			wr.Delete = true
		case d.object.Revision != 0 && same(d.object.Spec, d.record):
			continue
		default:
			wr.Spec = spec.Encode(d.record)
		}
		all = append(all, wr)
	}
	all = append(all, w.dependencyWrites()...)
	for _, name := range slices.Sorted(maps.Keys(w.machines)) {
		k := w.machines[name]
		wr := state.Write{ID: state.ID{Kind: spec.KindMachine, Name: name}}
		if k.before == nil {
			if k.renamed != nil {
				all = append(all, state.Write{ID: k.renamed.ID, Revision: k.renamed.Revision, UID: k.renamed.UID, Delete: true})
				wr.Status = k.renamed.Status
			}
			wr.Spec, wr.UID = spec.Encode(k.record), k.uid
			all = append(all, wr)
			continue
		}
		wr.Revision, wr.UID = state.AnyRevision, k.before.UID
		if !same(k.was, k.record) {
			wr.Spec = spec.Encode(k.record)
		}
		if k.life != k.before.Life {
			wr.Life = k.life
		}
		if wr.Spec != nil || wr.Life != "" {
			all = append(all, wr)
		}
	}
	return all
}

// planned returns all objects for the planner: networks and storage, then
// machines.
func (w *declaredState) planned() []PlannedObject {
	all := w.plannedDependencies()
	for _, name := range slices.Sorted(maps.Keys(w.machines)) {
		k := w.machines[name]
		p := PlannedObject{Before: k.before}
		if k.before == nil {
			p.After = state.Object{ID: state.ID{Kind: spec.KindMachine, Name: name}, Generation: 1, UID: k.uid}
			if k.renamed != nil {
				p.After.Status = k.renamed.Status
			}
		} else {
			p.After = *k.before
		}
		p.After.Life = k.life
		change := k.record
		if k.before != nil && k.life == state.Alive {
			change.Held = k.was.Held // a hold does not affect the instance
		}
		if k.before == nil || !same(k.was, change) {
			p.After.Spec = spec.Encode(change)
		}
		if k.before != nil && (k.life != k.before.Life || !same(k.was, change)) {
			p.After.Generation++
		}
		all = append(all, p)
	}
	return all
}
