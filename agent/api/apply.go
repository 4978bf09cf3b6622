package api

import (
	"context"
	"strings"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/internal/fault"
	"hostler/internal/plan"
)

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
	return answer(s.Apply(ctx, i.Body))
}

// readable returns an error if the caller is a reader and sent more documents
// than the limit for readers' plans.
func readable(c caller, sent []client.Document) error {
	if c.role == roleReader && len(sent) > maxReaderDocuments {
		return fault.New(fault.Invalid, "cannot plan %d documents: the group hostler may have %d planned at a time; send fewer, or ask as root or as a member of hostler-admin",
			len(sent), maxReaderDocuments)
	}
	return nil
}

// plannable returns an error if the caller is a reader and the documents exceed
// the limits of objects or networks for readers' plans.
func plannable(c caller, docs []declare.Document) error {
	objects, networks := 0, 0
	for _, doc := range docs {
		objects += doc.Declaration.Len()
		networks += len(doc.Declaration.Networks)
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

// Apply makes documents the declared state. For a dry run it only returns the
// changes that it would make. If it returns no error, the changes are durable.
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
	if err := declare.CheckAllow(req.Allow); err != nil {
		return client.Plan{}, err
	}
	if err := confirming(docs, req.Confirm); err != nil {
		return client.Plan{}, err
	}
	return s.declare(ctx, docs, req)
}

// parseDocuments parses all documents. Its error lists the faults of all of
// them.
func parseDocuments(sent []client.Document) ([]declare.Document, error) {
	if len(sent) == 0 {
		return nil, fault.New(fault.Invalid, "cannot apply: no document was sent")
	}
	var docs []declare.Document
	var wrong []string
	for _, d := range sent {
		doc, err := declare.Parse(d.Name, []byte(d.Content))
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		doc.Source, doc.Place, doc.From = spec.SourceApply, fault.Clip(d.Name, 256), fault.Clip(d.Path, 4096)
		docs = append(docs, doc)
	}
	if len(wrong) > 0 {
		return nil, fault.New(fault.Invalid, "%s", fault.List(wrong, "\n"))
	}
	return docs, nil
}

// declare applies parsed documents to the declared state. It returns the plan
// and, unless the request is a dry run, writes the changed state.
func (s *Server) declare(ctx context.Context, docs []declare.Document, req client.ApplyRequest) (p client.Plan, err error) {
	err = s.rewrite(ctx, req.DryRun, func(w *declare.State) error {
		look := ctx
		if !req.DryRun { // leave time for the write
			var cancel context.CancelFunc
			look, cancel = context.WithTimeout(ctx, s.o.Look)
			defer cancel()
		}
		a, err := w.Apply(declare.Request{
			Documents: docs, Replace: req.Replace, Folders: req.Folders, Allow: req.Allow, Unread: s.unread(w), DryRun: req.DryRun,
		}, s.hostFor(ctx, look, req.DryRun))
		if err != nil {
			return err
		}
		p = client.Plan{Steps: a.Steps, Removed: orEmpty(a.Removed), Gone: a.Gone, Awaited: w.Awaited(docs)}
		p.Objects, p.Machines = declare.Objects(docs)
		p.Machines = orEmpty(p.Machines)
		if f, ok := s.o.Service.Planner.(warner); ok {
			p.Warnings = f.Warnings(look, w.Planned(), warned(callerFrom(ctx), docs))
		}
		return nil
	})
	if err != nil {
		return client.Plan{}, err
	}
	if !req.DryRun {
		s.log.Info("Documents were applied.", "declarations", declare.Names(docs), "removed", len(p.Removed))
	}
	return p, nil
}

// warned returns the objects of the documents about which the caller gets
// warnings. A reader gets no warnings about images in files, because a warning
// would show whether a file exists.
func warned(c caller, docs []declare.Document) map[string]bool {
	scope := declare.Scope(docs)
	for _, doc := range docs {
		for name, m := range doc.Declaration.Machines {
			if c.role == roleReader && strings.HasPrefix(m.Image, "file:") {
				delete(scope, spec.KindMachine+"/"+name)
			}
		}
	}
	return scope
}

// hostFor returns the planner's view of the host. look bounds the time of its
// plans. If the host cannot be observed, a dry run fails. An apply still
// succeeds and returns the changes of the declarations instead of a plan.
func (s *Server) hostFor(ctx, look context.Context, dry bool) declare.Host {
	return declare.Host{
		Refuse: func(objects []declare.Planned) error { return s.o.Service.Planner.Refuse(ctx, objects) },
		Plan: func(objects []declare.Planned, scope map[string]bool) ([]plan.Step, error) {
			steps, err := s.o.Service.Planner.Plan(look, objects, scope)
			if err == nil || dry {
				return steps, err
			}
			s.log.Warn("cannot plan the applied documents", "error", err)
			return declare.BlindSteps(objects, err), nil
		},
	}
}
