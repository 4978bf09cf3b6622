package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// allowable are the impacts that a user can allow.
var allowable = []string{"restart", "recreate", "destroy"}

// declareTries bounds the attempts at a change when an object is removed
// between the reading and the write.
const declareTries = 10

func (s *Server) plan(ctx context.Context, i *in[client.ApplyRequest]) (*out[client.Plan], error) {
	i.Body.DryRun = true
	if err := readable(callerFrom(ctx), i.Body.Documents); err != nil {
		return nil, err
	}
	return s.apply(ctx, i)
}

func (s *Server) apply(ctx context.Context, i *in[client.ApplyRequest]) (*out[client.Plan], error) {
	if !i.Body.DryRun {
		s.o.Service.Guard.Remember(clientOf(callerFrom(ctx).PID))
	}
	p, err := s.Apply(ctx, i.Body)
	if err != nil {
		return nil, err
	}
	return &out[client.Plan]{p}, nil
}

// readable refuses a request with more documents than a reader may have
// planned.
func readable(c caller, sent []client.Document) error {
	if c.role == roleReader && len(sent) > maxReaderDocuments {
		return fault.New(fault.Invalid, "cannot plan %d documents: the group hostler may have %d planned at a time; send fewer, or ask as root or as a member of hostler-admin",
			len(sent), maxReaderDocuments)
	}
	return nil
}

// plannable refuses more objects than a reader may have planned.
func plannable(c caller, docs []document) error {
	objects, networks := 0, 0
	for _, doc := range docs {
		objects += doc.decl.Len()
		networks += len(doc.decl.Networks)
	}
	const much = "cannot plan %d %s: the group hostler may have %d planned at a time; send fewer documents, or ask as root or as a member of hostler-admin"
	switch {
	case c.role != roleReader:
	case objects > maxReaderObjects:
		return fault.New(fault.Invalid, much, objects, "objects", maxReaderObjects)
	case networks > maxReaderNetworks:
		return fault.New(fault.Invalid, much, networks, "networks", maxReaderNetworks)
	}
	return nil
}

// Apply puts documents in force, or returns what that would change if the
// request is a dry run. An answer without an error means that the change is
// durable.
func (s *Server) Apply(ctx context.Context, req client.ApplyRequest) (client.Plan, error) {
	docs, err := parseDocuments(req.Documents)
	if err != nil {
		return client.Plan{}, err
	}
	if !req.DryRun {
		s.auditApply(ctx, docs)
	}
	if err := plannable(callerFrom(ctx), docs); err != nil {
		return client.Plan{}, err
	}
	for _, a := range req.Allow {
		if !slices.Contains(allowable, a) {
			return client.Plan{}, fault.New(fault.Invalid, "cannot allow %q: %s can be allowed", raw.Clip(a, 32), strings.Join(allowable, ", "))
		}
	}
	if err := confirming(docs, req.Confirm); err != nil {
		return client.Plan{}, err
	}
	return s.declare(ctx, docs, req)
}

// parseDocuments parses every document and returns all faults.
func parseDocuments(sent []client.Document) ([]document, error) {
	if len(sent) == 0 {
		return nil, fault.New(fault.Invalid, "cannot apply: no document was sent")
	}
	var docs []document
	var wrong []string
	for _, d := range sent {
		decl, lines, err := spec.ParseAlone(d.Name, []byte(d.Content))
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		docs = append(docs, document{
			name: decl.Name, source: spec.SourceApply, place: raw.Clip(d.Name, 256), from: raw.Clip(d.Path, 4096),
			decl: decl, text: []byte(d.Content), lines: lines,
		})
	}
	if len(wrong) > 0 {
		return nil, fault.New(fault.Invalid, "%s", fault.List(wrong, "\n"))
	}
	return docs, nil
}

// declare decides, plans and writes.
func (s *Server) declare(ctx context.Context, docs []document, req client.ApplyRequest) (client.Plan, error) {
	var p client.Plan
	unsupported := unsupportedOf(docs)
	if len(unsupported) > 0 && !req.DryRun {
		return p, fault.New(fault.Invalid, "cannot apply %s: %s", names(docs), fault.List(unsupported, "; "))
	}
	err := s.rewrite(ctx, req.DryRun, func(w *declaredState) error {
		gone, removed, err := s.updateApplied(w, docs, req)
		if err != nil {
			return err
		}
		if err := s.o.Service.Planner.Refuse(ctx, w.planned()); err != nil {
			return err
		}
		look := ctx
		if !req.DryRun { // the write needs time as well
			var cancel context.CancelFunc
			look, cancel = context.WithTimeout(ctx, s.o.Look)
			defer cancel()
		}
		steps, err := s.steps(look, w, docs, removed, req.DryRun)
		if err != nil {
			return err
		}
		if impacts := withoutDestroy(req.Allow); len(impacts) > 0 {
			w.allow(impacts, docs, heldBy(steps, spec.KindMachine))
			if err := w.allowNetworks(impacts, docs, heldBy(steps, spec.KindNetwork)); err != nil {
				return err
			}
			if steps, err = s.steps(look, w, docs, removed, req.DryRun); err != nil {
				return err
			}
		}
		steps = append(withRemoved(steps, removed), s.heldRemovals(w, docs, gone)...)
		p = client.Plan{
			Steps: holdUnsupported(steps, unsupported), Machines: machinesOf(docs), Objects: dependenciesIn(docs),
			Removed: removed, Unsupported: unsupported, Gone: gone, Awaited: w.awaitedOf(docs),
		}
		p.Warnings = s.warnings(look, w, docs)
		return nil
	})
	if err != nil {
		return client.Plan{}, err
	}
	if !req.DryRun {
		s.log.Info("Documents were applied.", "declarations", names(docs), "removed", len(p.Removed))
	}
	return p, nil
}

// updateApplied puts the documents in force and updates the records. gone names
// the declarations whose files are no longer in an applied folder, removed the
// objects to remove.
func (s *Server) updateApplied(w *declaredState, docs []document, req client.ApplyRequest) (gone, removed []string, err error) {
	if err := w.checkSources(docs, req.Replace); err != nil {
		return nil, nil, err
	}
	before := w.recorded()
	gone = w.goneFrom(req.Folders, docs)
	r := w.request(docs)
	r.Together = true
	for _, name := range gone {
		delete(r.Wanted, name)
	}
	consent := map[string]bool{}
	if slices.Contains(req.Allow, impactDestroy) {
		consent = w.ofDeclarations(docs, gone)
		r.Existing = documents.Without(r.Existing, slices.Collect(maps.Keys(consent))...)
	}
	m := documents.Merge(r)
	if err := refusal(docs, m); err != nil {
		return nil, nil, err
	}
	for _, doc := range docs {
		if err := w.checkTypes(doc); err != nil {
			return nil, nil, err
		}
		if err := cmp.Or(w.checkPlaces(doc), w.checkRenames(doc)); err != nil {
			return nil, nil, err
		}
	}
	w.enforce(m, docs)
	if removed, err = w.updateRecords(docs, removal{consent: consent, partial: s.unread(w) != ""}); err != nil {
		return nil, nil, err
	}
	if err := w.checkCount(); err != nil {
		return nil, nil, fault.New(fault.Invalid, "cannot apply %s: %w", names(docs), err)
	}
	return gone, removed, w.checkUsed(before)
}

// refusal joins the reasons against the applied documents.
func refusal(docs []document, m documents.Merged) error {
	var texts []string
	kind := fault.Invalid
	for _, doc := range docs {
		if err := m.Refused[doc.name]; err != nil {
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
		texts[0] = fmt.Sprintf("cannot apply %s: %s", names(docs), texts[0])
	}
	return fault.New(kind, "%s", fault.List(texts, "\n"))
}

// rewrite reads the declared state, calls change on it and writes the result
// atomically. It calls change again on a fresh reading when an object was
// removed in between.
func (s *Server) rewrite(ctx context.Context, dry bool, change func(*declaredState) error) error {
	if !dry {
		unlock, err := s.lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
	}
	for try := 1; ; try++ {
		w, err := s.readState(ctx)
		if err != nil {
			return err
		}
		if err := change(w); err != nil {
			return err
		}
		if dry {
			return nil
		}
		s.awaits.Store(w.awaited()) // before the write can remove the object
		writes := w.writes()
		if len(writes) == 0 {
			return nil
		}
		if err = s.commit(ctx, writes); err == nil {
			s.noteHeld(ctx, w)
		}
		raced := fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound)
		if !raced || try == declareTries {
			return err
		}
	}
}

// lock waits until no other change is in progress. A change observes the host,
// which may take long, so the wait ends with ctx.
func (s *Server) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case s.declaring <- struct{}{}:
		return func() { <-s.declaring }, nil
	case <-ctx.Done():
		return nil, fault.New(fault.Transient, "another change is still being made: %w", ctx.Err())
	}
}

// commit writes durably.
func (s *Server) commit(ctx context.Context, writes []state.Write) error {
	if err := failpoint.Hit(failpoint.APIAcceptedNotDurable); err != nil {
		return err
	}
	if _, err := s.o.Backend.Write(ctx, state.Atomic, writes...); err != nil {
		return err
	}
	return failpoint.Hit(failpoint.APIDurableNotConfirmed)
}
