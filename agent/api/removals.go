package api

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// impactDestroy is the impact of a step that removes an object with its data.
const impactDestroy = "destroy"

func withoutDestroy(impacts []string) []string {
	return slices.DeleteFunc(slices.Clone(impacts), func(i string) bool { return i == impactDestroy })
}

// goneFrom names the declarations that were applied from files of the folders
// and are not among the documents.
func (w *declaredState) goneFrom(folders []string, docs []document) (gone []string) {
	applied := map[string]bool{}
	for _, doc := range docs {
		applied[doc.name] = true
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

// ofDeclarations returns the objects (KIND/NAME) of the documents' declarations
// and of those in gone.
func (w *declaredState) ofDeclarations(docs []document, gone []string) map[string]bool {
	owned := map[string]bool{}
	for _, name := range gone {
		owned[name] = true
	}
	for _, doc := range docs {
		owned[doc.name] = true
	}
	objects := map[string]bool{}
	for name, k := range w.machines {
		if owned[k.record.Declaration] {
			objects[spec.KindMachine+"/"+name] = true
		}
	}
	for id, g := range w.dependencies {
		if owned[g.declaration] {
			objects[id.Kind+"/"+id.Name] = true
		}
	}
	return objects
}

// unread returns why the set of declared objects is incomplete, e.g. a refused
// file; "" if it is complete.
func (s *Server) unread(w *declaredState) string {
	answer := s.folder.Load()
	switch {
	case answer == nil && (s.o.Unread != nil || w.hasFiles()):
		return "the declaration files are not read yet"
	case answer == nil:
		return ""
	case len(answer.Refused) > 0:
		return strings.Join(slices.Sorted(maps.Keys(answer.Refused)), ", ") + " is not in force"
	case len(answer.Settling) > 0:
		return strings.Join(answer.Settling, ", ") + " may come back in a moment"
	case s.o.Unread != nil:
		return s.o.Unread()
	}
	return ""
}

// hasFiles reports whether any declaration comes from a file.
func (w *declaredState) hasFiles() bool {
	for _, d := range w.declarations {
		if isFile(d.record.Source) {
			return true
		}
	}
	return false
}

// heldRemovals returns the steps that wait for consent to remove undeclared
// objects of the documents' declarations.
func (s *Server) heldRemovals(w *declaredState, docs []document, gone []string) (steps []client.Step) {
	owned, why, newcomers := w.ofDeclarations(docs, gone), s.unread(w), w.newcomers()
	for _, object := range w.held() {
		if !owned[object] {
			continue
		}
		st := client.Step{Object: object, Action: "delete", Impact: impactDestroy, Detail: "no document declares it any more", Held: "--allow " + impactDestroy, Allow: impactDestroy}
		if w.retained(object) {
			st.Action, st.Impact, st.Detail = "release", "none", "no longer declared; its data is kept"
		}
		if users, err := w.usersOf(object, nil); err == nil && len(users) > 0 {
			st.Held, st.Allow = "it is used by "+fault.List(users, ", "), ""
			if slices.ContainsFunc(users, func(u string) bool { return w.owners[u] == "" }) {
				st.Held, st.Allow = st.Held+"; --allow "+impactDestroy, impactDestroy
			}
		}
		if why != "" {
			st.Held, st.Allow = "no object is removed while "+why, ""
		}
		if renamed := w.looksRenamed(object, newcomers); renamed != "" {
			st.Detail += fmt.Sprintf("; to rename it to %s with its data, add \"renamed-from: %s\" to %s", renamed, idOf(object).Name, renamed)
		}
		steps = append(steps, st)
	}
	return steps
}

// withRemoved adds a step for each removed object without a step. The planner
// plans none for an object that never had an instance or data.
func withRemoved(steps []client.Step, removed []string) []client.Step {
	planned := map[string]bool{}
	for _, st := range steps {
		planned[st.Object] = true
	}
	for _, object := range removed {
		if !planned[object] {
			steps = append(steps, client.Step{Object: object, Action: "delete", Impact: "none", Detail: "no document declares it any more; it has no data"})
		}
	}
	return steps
}

// newcomers maps the declarations of new machines to their names, without
// renamed machines; of several equal declarations it takes the first by name.
func (w *declaredState) newcomers() map[string]string {
	all := map[string]string{}
	for name, k := range w.machines {
		if k.before != nil || k.record.Machine.RenamedFrom != "" {
			continue
		}
		text := string(spec.Encode(k.record.Machine))
		if other, alike := all[text]; !alike || name < other {
			all[text] = name
		}
	}
	return all
}

// looksRenamed returns a new machine with the same declaration as a held
// machine.
func (w *declaredState) looksRenamed(object string, newcomers map[string]string) string {
	id := idOf(object)
	if id.Kind != spec.KindMachine {
		return ""
	}
	was := w.machines[id.Name].record.Machine
	if !renamable(was) {
		return ""
	}
	return newcomers[string(spec.Encode(was))]
}

func (s *Server) allowed(ctx context.Context, i *in[client.AllowRequest]) (*out[client.DeleteAnswer], error) {
	outcomes, err := s.Allow(ctx, i.Body.Impact, i.Body.Objects...)
	if err != nil {
		return nil, err
	}
	return &out[client.DeleteAnswer]{client.DeleteAnswer{Outcomes: outcomes}}, nil
}

// Allow consents to an impact on held objects (KIND/NAME) in one atomic write.
func (s *Server) Allow(ctx context.Context, impact string, objects ...string) (outcomes []client.Outcome, err error) {
	err = s.rewrite(ctx, false, func(w *declaredState) error {
		outcomes = make([]client.Outcome, len(objects))
		consent, together := map[string]bool{}, map[string]bool{}
		for _, object := range objects {
			together[object] = true
		}
		for n, object := range objects {
			err := s.consent(w, impact, object, together)
			if outcomes[n] = outcomeOf(object, err); err == nil && impact == impactDestroy {
				consent[object] = true
			}
		}
		if len(consent) == 0 {
			return nil
		}
		_, err := w.updateRecords(nil, removal{consent: consent})
		return err
	})
	return outcomes, err
}

// consent allows an impact on an object. For destroy it only checks; with holds
// the objects that should be removed together.
func (s *Server) consent(w *declaredState, impact, object string, with map[string]bool) error {
	id, err := parseObject(object)
	if err != nil {
		return err
	}
	k, g := w.machines[id.Name], w.dependencies[id]
	if id.Kind == spec.KindMachine && k == nil || id.Kind != spec.KindMachine && g == nil {
		return fault.New(fault.NotFound, "%s is not there", raw.Clip(object, 128))
	}
	switch {
	case impact == impactDestroy:
		return s.consentDestroy(w, object, with)
	case id.Kind == spec.KindMachine:
		k.record.Consent(slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(k.record.Allow), impact)))))
		return nil
	case id.Kind == spec.KindNetwork:
		return g.change(id, func(r *spec.NetworkRecord) {
			r.Allow = slices.Compact(slices.Sorted(slices.Values(append(r.Allow, impact))))
		}, nil, nil)
	}
	return fault.New(fault.Invalid, "cannot allow %s of %s: only machines and networks are restarted or recreated", impact, raw.Clip(object, 128))
}

func (s *Server) consentDestroy(w *declaredState, object string, with map[string]bool) error {
	owner := w.owners[object]
	if answer := s.folder.Load(); owner != "" && answer != nil && slices.Contains(answer.Settling, w.declarations[owner].record.Source) {
		return fault.New(fault.NotReady, "%s disappeared a moment ago, and %s is held only after some seconds; try again then",
			w.declarations[owner].record.Source, object)
	}
	if owner != "" {
		return fault.New(fault.Conflict, "%s is not held: the declaration %s declares it; remove it there, or run `hostler delete %s`", object, owner, object)
	}
	if why := s.unread(w); why != "" {
		return fault.New(fault.NotReady, "cannot remove %s while %s, since it may be declared there; fix that file first", object, why)
	}
	users, err := w.usersOf(object, with)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fault.New(fault.Conflict, "cannot remove %s: it is used by %s", object, fault.List(users, ", "))
	}
	return nil
}

// noteHeld records an event for each object that is held since this write. Each
// event is recorded at least once; after a crash it may be missing.
func (s *Server) noteHeld(ctx context.Context, w *declaredState) {
	var events []state.Event
	for _, object := range w.newlyHeld() {
		events = append(events, state.Event{
			Time: s.now(), Object: idOf(object), Level: state.LevelWarn, Reason: "Held",
			Message: "no document declares it any more; it is held: `hostler allow destroy " + object + "` removes it with its data",
		})
	}
	if len(events) == 0 {
		return
	}
	if err := s.o.Backend.Record(ctx, events...); err != nil {
		s.log.Warn("cannot record that objects are held", "error", err)
	}
}

// newlyHeld lists the objects that are held since this write, sorted.
func (w *declaredState) newlyHeld() (objects []string) {
	for name, k := range w.machines {
		if k.life == state.Alive && k.record.Held != "" && k.was.Held == "" {
			objects = append(objects, spec.KindMachine+"/"+name)
		}
	}
	for id, g := range w.dependencies {
		if g.life == state.Alive && g.held != "" && g.holds == "" {
			objects = append(objects, id.Kind+"/"+id.Name)
		}
	}
	slices.Sort(objects)
	return objects
}

// heldNotice names the held objects and how to remove them, "" if there are
// none.
func (s *Server) heldNotice(ctx context.Context) (string, error) {
	w, err := s.readState(ctx)
	if err != nil {
		return "", err
	}
	held := w.held()
	if len(held) == 0 {
		return "", nil
	}
	const most = 20
	names := strings.Join(held[:min(len(held), most)], " ")
	if len(held) > most {
		names += fmt.Sprintf(" and %d more", len(held)-most)
	}
	text := "no document declares " + names + " any more; held: `hostler allow destroy KIND/NAME` removes an object with its data"
	if why := s.unread(w); why != "" {
		text += "; no object is removed while " + why
	}
	return text, nil
}
