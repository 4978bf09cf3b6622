package declare

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler/agent/spec/documents"
	"hostler/internal/fault"
	"hostler/internal/plan"
)

// Request asks to put documents in force.
type Request struct {
	Documents []Document
	// Replace permits a declaration to come from another file than before.
	Replace bool
	// Folders are the folders that were applied as a whole.
	Folders []string
	// Allow lists the allowed impacts: restart, recreate, destroy.
	Allow  []string
	Unread Unread
	// DryRun is true if the change is only planned.
	DryRun bool
}

// Applied is the result of a request.
type Applied struct {
	Steps []plan.Step
	// Gone names the declarations whose files are no longer in an applied folder.
	Gone []string
	// Removed lists the objects to remove.
	Removed []string
}

// CheckAllow returns an error for an impact that a user cannot allow.
func CheckAllow(impacts []string) error {
	for _, a := range impacts {
		if !slices.Contains(allowable, a) {
			return fault.New(fault.Invalid, "cannot allow %q: %s can be allowed", fault.Clip(a, 32), strings.Join(allowable, ", "))
		}
	}
	return nil
}

// Apply puts documents in force, updates the records and plans the change.
func (w *State) Apply(q Request, host Host) (a Applied, err error) {
	if a, err = w.put(q); err != nil {
		return a, err
	}
	if err := host.Refuse(w.Planned()); err != nil {
		return a, err
	}
	steps, err := w.steps(q.Documents, a.Removed, host)
	if err != nil {
		return a, err
	}
	impacts := slices.DeleteFunc(slices.Clone(q.Allow), func(i string) bool { return i == impactDestroy })
	// A step that is no longer held may cause another held step: a machine restarts
	// for the new addresses of its network.
	for allowed := map[string]bool{}; w.allow(impacts, q.Documents, steps, allowed); {
		if steps, err = w.steps(q.Documents, a.Removed, host); err != nil {
			return a, err
		}
	}
	a.Steps = append(withRemoved(steps, a.Removed), w.heldRemovals(q.Documents, a.Gone, q.Unread)...)
	return a, nil
}

// put puts documents in force and updates the records.
func (w *State) put(q Request) (a Applied, err error) {
	docs := q.Documents
	w.retype(docs)
	if err := w.checkSources(docs, q.Replace); err != nil {
		return a, err
	}
	before := w.recorded()
	a.Gone = w.goneFrom(q.Folders, docs)
	r := w.request(docs)
	r.Together = true
	for _, name := range a.Gone {
		delete(r.Wanted, name)
	}
	consent := map[string]bool{}
	if slices.Contains(q.Allow, impactDestroy) {
		consent = w.ofDeclarations(docs, a.Gone)
		r.Existing = documents.Without(r.Existing, slices.Collect(maps.Keys(consent))...)
	}
	m := documents.Merge(r)
	if err := refusal(docs, m); err != nil {
		return a, err
	}
	for _, doc := range docs {
		if err := w.checkFixed(doc); err != nil {
			return a, err
		}
	}
	w.enforce(m, docs)
	a.Removed = w.updateRecords(docs, removal{consent: consent, partial: q.Unread.Reason != ""})
	if err := w.checkCount(); err != nil {
		return a, fault.New(fault.Invalid, "cannot apply %s: %w", Names(docs), err)
	}
	return a, w.checkUsed(before)
}

// refusal joins the reasons against the applied documents into one error. It
// returns nil if there are none.
func refusal(docs []Document, m documents.Merged) error {
	var texts []string
	kind := fault.Invalid
	for _, doc := range docs {
		if err := m.Refused[doc.Name]; err != nil {
			texts = append(texts, err.Error())
			if fault.Is(err, fault.Conflict) {
				kind = fault.Conflict
			}
		}
	}
	if len(texts) == 0 {
		return nil
	}
	if kind == fault.Conflict {
		texts[0] = fmt.Sprintf("cannot apply %s: %s", Names(docs), texts[0])
	}
	return fault.New(kind, "%s", fault.List(texts, "\n"))
}

// Redeclare creates objects again that a document declared while they were
// being removed. It leaves out objects whose removal has not ended.
func (w *State) Redeclare() { w.updateRecords(nil, removal{partial: true}) }
