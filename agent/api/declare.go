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

// This file decides what declaring, deleting and letting go write. It is
// pure: a world goes in, writes come out.

// isFile says whether a declaration's source is a file, which owns what it
// declares.
func isFile(source string) bool {
	return source != spec.SourceApply && source != spec.SourceStamps
}

// world is the declared state as of one reading.
type world struct {
	declarations map[string]*declared
	machines     map[string]*kept
	givens       map[state.ID]*given
}

// declared is one declaration; a nil document is one that is to go.
type declared struct {
	object state.Object // Revision 0: new
	record spec.DeclarationRecord
	gone   bool
}

// kept is one machine object.
type kept struct {
	before *state.Object // nil: new
	was    spec.MachineRecord
	record spec.MachineRecord
	life   state.Life
	uid    string // of a new one, where it is to be a known one
}

// rests says that the machine waits to be started since the host was.
func (k *kept) rests() bool {
	status, known := k.status()
	return known && status.Rests()
}

// frozen says that a machine which is to run has an instance that stands still.
func (k *kept) frozen() bool {
	status, known := k.status()
	wanted := k.was.Machine.WantsRunning()
	if o := k.was.PowerOverride; o != nil {
		wanted = *o
	}
	return known && wanted && status.State == spec.MachineStopped && !status.Rests()
}

func (k *kept) status() (status spec.MachineStatus, known bool) {
	known = k.before != nil && json.Unmarshal(k.before.Status, &status) == nil
	return status, known
}

// newWorld reads the objects that are declared, and their declarations.
func newWorld(objects []state.Object) (*world, error) {
	w := &world{declarations: map[string]*declared{}, machines: map[string]*kept{}, givens: map[state.ID]*given{}}
	for _, o := range objects {
		switch o.Kind {
		case spec.KindDeclaration:
			d := &declared{object: o}
			if err := json.Unmarshal(o.Spec, &d.record); err != nil {
				return nil, fmt.Errorf("cannot read declaration/%s: %w", o.Name, err)
			}
			w.declarations[o.Name] = d
		case spec.KindMachine:
			k := &kept{before: &o, life: o.Life}
			if err := json.Unmarshal(o.Spec, &k.was); err != nil {
				return nil, fmt.Errorf("cannot read machine/%s: %w", o.Name, err)
			}
			k.record = k.was
			w.machines[o.Name] = k
		case spec.KindNetwork, spec.KindVolume, spec.KindFilesystem:
			g, err := newGiven(o)
			if err != nil {
				return nil, err
			}
			w.givens[o.ID] = g
		}
	}
	return w, nil
}

// document is a declaration that is to be the declared one.
type document struct {
	name, source string
	from         string // the file that a person named
	decl         spec.Declaration
	// confirm is how long a change of the host's own network waits for a word.
	confirm spec.Duration
}

// declare puts the documents in the place of those of their names, and drops
// the declarations that a file no longer holds. It returns the KIND/NAMEs that
// are declared no more.
func (w *world) declare(docs []document, dropped ...string) ([]string, error) {
	before := w.objects()
	if err := w.checkSources(docs); err != nil {
		return nil, err
	}
	for _, name := range dropped {
		w.declarations[name].gone = true
	}
	for _, doc := range docs {
		d := w.declarations[doc.name]
		if d == nil {
			d = &declared{}
			w.declarations[doc.name] = d
		}
		d.record, d.gone = spec.DeclarationRecord{Source: doc.source, Document: doc.decl}, false
	}
	if err := w.checkConflicts(docs); err != nil {
		return nil, err
	}
	for _, doc := range docs {
		if err := w.declareGivens(doc); err != nil {
			return nil, err
		}
		if err := w.declareMachines(doc); err != nil {
			return nil, err
		}
	}
	for _, doc := range docs {
		w.retire(doc.name, before)
	}
	for _, name := range dropped {
		w.retire(name, before)
	}
	after := w.objects()
	return orEmpty(slices.DeleteFunc(slices.Sorted(maps.Keys(before)), func(o string) bool { return after[o] })), nil
}

// checkSources refuses to take a declaration from where it came from.
func (w *world) checkSources(docs []document) error {
	seen := map[string]string{}
	for i, doc := range docs {
		if other, twice := seen[doc.name]; twice {
			return fault.New(fault.Invalid, "cannot apply: %s and %s are both the declaration %s; give one of them another `name:`", other, doc.from, doc.name)
		}
		seen[doc.name] = doc.from
		d := w.declarations[doc.name]
		if d == nil || d.record.Source == doc.source || d.record.Source == spec.SourceStamps {
			continue
		}
		if isFile(d.record.Source) && !isFile(doc.source) && same(d.record.Document, doc.decl) {
			// The very content of the file: nothing is taken from it, but what
			// needs a word can have it.
			docs[i].source = d.record.Source
			continue
		}
		if !isFile(d.record.Source) {
			return fault.New(fault.Conflict, "cannot take %s: the declaration %s was applied by hand; delete declaration/%s first",
				doc.source, doc.name, doc.name)
		}
		return fault.New(fault.Conflict, "cannot apply %s: that declaration comes from %s; edit that file", doc.name, d.record.Source)
	}
	return nil
}

// checkConflicts refuses an object that two declarations name.
func (w *world) checkConflicts(docs []document) error {
	all := map[string]spec.Declaration{}
	for name, d := range w.declarations {
		if !d.gone {
			all[name] = d.record.Document
		}
	}
	conflicts := spec.Conflicts(all)
	if len(conflicts) == 0 {
		return nil
	}
	texts := make([]string, len(conflicts))
	for i, c := range conflicts {
		texts[i] = c.Message
	}
	return fault.New(fault.Conflict, "cannot apply %s: %s", names(docs), strings.Join(texts, "; "))
}

func names(docs []document) string {
	var all []string
	for _, d := range docs {
		all = append(all, d.name)
	}
	return strings.Join(all, ", ")
}

// declareMachines makes or changes the machine objects of a document.
func (w *world) declareMachines(doc document) error {
	if err := w.checkTypes(doc); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(doc.decl.Machines)) {
		m := doc.decl.Machines[name]
		k := w.machines[name]
		if k == nil {
			w.machines[name] = &kept{record: spec.MachineRecord{Declaration: doc.name, Machine: m}, life: state.Alive}
			continue
		}
		if k.life != state.Alive {
			return fault.New(fault.NotReady, "cannot apply %s: machine/%s is still being removed; apply again when it is gone", doc.name, name)
		}
		changed := !same(k.was.Machine, m)
		if changed {
			// What was allowed was allowed for the machine as it was.
			k.record.Allow = nil
		}
		if changed || !isFile(doc.source) {
			// A file is read again at every start of the agent, which is
			// nobody's wish to have what was stopped by hand run.
			k.record.PowerOverride = nil
			if k.rests() && m.WantsRunning() {
				k.record.PowerOverride = new(true)
			}
		}
		k.record.Declaration, k.record.Machine, k.record.GuestLost = doc.name, m, false
	}
	return nil
}

// retire sends away the machines of one declaration that it names no more, and
// adds them to those that were declared. Machines of declarations that are not
// there are left alone: after the loss of a store the machines are found again
// by their stamps, but their documents only when they are applied again.
func (w *world) retire(declaration string, declared map[string]bool) {
	d := w.declarations[declaration]
	for name, k := range w.machines {
		if k.record.Declaration != declaration || k.life != state.Alive {
			continue
		}
		if d != nil && !d.gone {
			if _, ok := d.record.Document.Machines[name]; ok {
				continue
			}
		}
		k.life = state.Dying
		k.record.Released = k.record.Released || k.record.Machine.Retain
		declared[spec.KindMachine+"/"+name] = true
	}
	w.retireGivens(declaration, declared)
}

// allow lets the impacts happen to the machines that were changed and to those
// in held.
func (w *world) allow(impacts []string, docs []document, held map[string]bool) {
	impacts = slices.Compact(slices.Sorted(slices.Values(impacts)))
	if len(impacts) == 0 {
		return
	}
	for _, doc := range docs {
		for name := range doc.decl.Machines {
			if k := w.machines[name]; k.before != nil && (held[name] || !same(k.was, k.record)) {
				k.record.Consent(impacts)
			}
		}
	}
}

// objects is the set of everything that is declared, as KIND/NAME.
func (w *world) objects() map[string]bool {
	all := map[string]bool{}
	for _, d := range w.declarations {
		if d.gone {
			continue
		}
		for _, o := range d.record.Document.Objects() {
			all[o] = true
		}
	}
	return all
}

// writes are the changes, none for what stays as it is. Machines are matched
// by uid and not by revision: their revision moves with every status write,
// while only the holder of the declaring lock writes specs.
func (w *world) writes() []state.Write {
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
	all = append(all, w.givenWrites()...)
	for _, name := range slices.Sorted(maps.Keys(w.machines)) {
		k := w.machines[name]
		wr := state.Write{ID: state.ID{Kind: spec.KindMachine, Name: name}}
		if k.before == nil {
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

// planned is everything for the planner: networks and storage, then machines.
func (w *world) planned() []PlannedObject {
	all := w.plannedGivens()
	for _, name := range slices.Sorted(maps.Keys(w.machines)) {
		k := w.machines[name]
		p := PlannedObject{Before: k.before}
		if k.before == nil {
			p.After = state.Object{ID: state.ID{Kind: spec.KindMachine, Name: name}, Generation: 1}
		} else {
			p.After = *k.before
		}
		p.After.Life = k.life
		if k.before == nil || !same(k.was, k.record) {
			p.After.Spec = spec.Encode(k.record)
		}
		if k.before != nil && (k.life != k.before.Life || !same(k.was, k.record)) {
			p.After.Generation++
		}
		all = append(all, p)
	}
	return all
}
