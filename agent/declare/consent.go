package declare

import (
	"fmt"
	"path/filepath"
	"slices"

	"hostler/agent/spec"
	"hostler/internal/fault"
	"hostler/internal/plan"
)

// impactDestroy is the impact of a step that removes an object with its data.
const impactDestroy = "destroy"

// allowable are the impacts that a user can allow.
var allowable = []string{spec.AllowRestart, spec.AllowRecreate, impactDestroy}

// Unread says why the set of declared objects is incomplete.
type Unread struct {
	// Reason says why objects may be missing from the set, e.g. because a file is
	// refused. It is "" if the set is complete.
	Reason string
	// Settling holds the files that are gone and may come back shortly.
	Settling []string
}

// allow records consent to the impacts for those objects of the documents that
// are changed or have a held step. It leaves out the objects in allowed, adds the
// others to it, and reports whether there are others.
func (w *State) allow(impacts []string, docs []Document, steps []plan.Step, allowed map[string]bool) (more bool) {
	if len(impacts) == 0 {
		return false
	}
	held := map[string]bool{}
	for _, st := range steps {
		held[st.Object] = held[st.Object] || st.Held != ""
	}
	for object := range Scope(docs) {
		o, consent := w.objects[object], impacts
		switch {
		case allowed[object], o.before == nil && o.renamed == nil, !o.allows:
			continue
		case held[object], o.changed():
		case o.isPending() && slices.Contains(impacts, spec.AllowRestart) && !o.allowsRestart():
			// The steps are not known yet. Consent to a restart is accepted already,
			// because it loses no data. Consent to a recreate must wait for its plan.
			consent = []string{spec.AllowRestart}
		default:
			continue
		}
		o.now.Consent(consent)
		allowed[object], more = true, true
	}
	return more
}

// Consent records consent to an impact on held objects. errs has an entry for
// each object: nil, or the reason why the impact cannot be allowed.
func (w *State) Consent(impact string, objects []string, unread Unread) (errs []error) {
	errs = make([]error, len(objects))
	consent, together := map[string]bool{}, map[string]bool{}
	for _, object := range objects {
		together[object] = true
	}
	for n, object := range objects {
		if errs[n] = w.consent(impact, object, together, unread); errs[n] == nil && impact == impactDestroy {
			consent[object] = true
		}
	}
	if len(consent) > 0 {
		w.updateRecords(nil, removal{consent: consent})
	}
	return errs
}

// consent records consent to an impact on an object. For destroy it only checks
// whether consent is possible. with holds the objects to be removed together.
func (w *State) consent(impact, object string, with map[string]bool, unread Unread) error {
	if _, err := ParseObject(object); err != nil {
		return err
	}
	o, err := w.object(object)
	switch {
	case err != nil:
		return err
	case impact == impactDestroy:
		return w.consentDestroy(object, with, unread)
	case !o.allows:
		return fault.New(fault.Invalid, "cannot allow %s of %s: only machines and networks are restarted or recreated", impact, fault.Clip(object, 128))
	}
	o.now.Consent([]string{impact})
	return nil
}

func (w *State) consentDestroy(object string, with map[string]bool, unread Unread) error {
	owner := w.owners[object]
	if owner != "" && slices.Contains(unread.Settling, w.declarations[owner].record.Source) {
		return fault.New(fault.NotReady, "%s disappeared a moment ago, and %s is held only after some seconds; try again then",
			w.declarations[owner].record.Source, object)
	}
	if owner != "" {
		return fault.New(fault.Conflict, "%s is not held: the declaration %s declares it; remove it there, or run `hostler delete %s`", object, owner, object)
	}
	if unread.Reason != "" {
		return fault.New(fault.NotReady, "cannot remove %s while %s, since it may be declared there; fix that file first", object, unread.Reason)
	}
	if users := w.usersOf(object, with); len(users) > 0 {
		return fault.New(fault.Conflict, "cannot remove %s: it is used by %s", object, fault.List(users, ", "))
	}
	return nil
}

// goneFrom names the declarations that were applied from files of the folders
// and are not among the documents.
func (w *State) goneFrom(folders []string, docs []Document) (gone []string) {
	applied := map[string]bool{}
	for _, doc := range docs {
		applied[doc.Name] = true
	}
	for name, d := range w.declarations {
		if d.record.Source != spec.SourceApply || d.record.From == "" || !slices.Contains(folders, filepath.Dir(d.record.From)) {
			continue
		}
		if !applied[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return gone
}

// ofDeclarations returns the objects of the documents' declarations and of the
// declarations in gone.
func (w *State) ofDeclarations(docs []Document, gone []string) map[string]bool {
	owned := map[string]bool{}
	for _, name := range gone {
		owned[name] = true
	}
	for _, doc := range docs {
		owned[doc.Name] = true
	}
	objects := map[string]bool{}
	for name, o := range w.objects {
		if owned[o.head().Declaration] {
			objects[name] = true
		}
	}
	return objects
}

// heldRemovals returns the steps that wait for consent to remove undeclared
// objects of the documents' declarations and of the declarations in gone.
func (w *State) heldRemovals(docs []Document, gone []string, unread Unread) (steps []plan.Step) {
	owned, newcomers := w.ofDeclarations(docs, gone), w.newcomers()
	for _, object := range w.Held() {
		if !owned[object] {
			continue
		}
		st := plan.Step{Object: object, Action: "delete", Impact: impactDestroy, Detail: "no document declares it any more", Held: "--allow " + impactDestroy, Allow: impactDestroy}
		if w.retained(object) {
			st.Action, st.Impact, st.Detail = "release", "none", "no longer declared; its data is kept"
		}
		if users := w.usersOf(object, nil); len(users) > 0 {
			st.Held, st.Allow = "it is used by "+fault.List(users, ", "), ""
			if slices.ContainsFunc(users, func(u string) bool { return w.owners[u] == "" }) {
				st.Held, st.Allow = st.Held+"; --allow "+impactDestroy, impactDestroy
			}
		}
		if unread.Reason != "" {
			st.Held, st.Allow = "no object is removed while "+unread.Reason, ""
		}
		if renamed := w.looksRenamed(object, newcomers); renamed != "" {
			st.Detail += fmt.Sprintf("; to rename it to %s with its data, add \"renamed-from: %s\" to %s", renamed, ID(object).Name, renamed)
		}
		steps = append(steps, st)
	}
	return steps
}
