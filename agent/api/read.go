package api

import (
	"context"
	"os"
	"slices"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

func (s *Server) version(context.Context, *struct{}) (*out[client.Version], error) {
	return &out[client.Version]{client.Version{Version: s.o.Version, Namespace: s.o.Namespace, PID: os.Getpid()}}, nil
}

// machinesQuery selects machines by name, in the order of the names. Without
// names it selects all machines.
type machinesQuery struct {
	Name []string `query:"name,explode" maxItems:"10000"`
}

func (s *Server) machines(ctx context.Context, q *machinesQuery) (*out[[]client.Machine], error) {
	return answer(s.machineRows(ctx, q.Name))
}

// machineRows lists the machines with these names, or all if names is empty. It
// returns fault.NotFound if a name is unknown.
func (s *Server) machineRows(ctx context.Context, names []string) ([]client.Machine, error) {
	rows, err := s.presentRows(ctx, names)
	if err != nil || len(rows) == len(names) || len(names) == 0 {
		return rows, err
	}
	for _, n := range names {
		if !slices.ContainsFunc(rows, func(m client.Machine) bool { return m.Name == n }) {
			return nil, fault.New(fault.NotFound, "machine/%s is not there", fault.Clip(n, 64))
		}
	}
	return rows, nil
}

// presentRows lists the machines like machineRows(), but leaves out unknown
// names.
func (s *Server) presentRows(ctx context.Context, names []string) ([]client.Machine, error) {
	all, err := listRows(ctx, s, spec.KindMachine, machineRow)
	if err != nil || len(names) == 0 {
		return all, err
	}
	byName := map[string]client.Machine{}
	for _, row := range all {
		byName[row.Name] = row
	}
	rows := []client.Machine{}
	for _, n := range names {
		if row, ok := byName[n]; ok {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func (s *Server) declarations(ctx context.Context, _ *struct{}) (*out[[]client.Declaration], error) {
	rows, err := listRows(ctx, s, spec.KindDeclaration, declarationRow)
	if folder := s.folder.Load(); folder != nil {
		for i, row := range rows {
			if refused := folder.Refused[row.Source]; refused != nil {
				rows[i].Problem = spec.Summary(refused)
			}
		}
	}
	return answer(rows, err)
}

// imagesOut holds the image rows and notices about missing images.
type imagesOut struct {
	Notices []string `header:"Hostler-Notice"`
	Body    []client.Image
}

func (s *Server) images(ctx context.Context, _ *struct{}) (*imagesOut, error) {
	answer, err := s.looks.images.get(ctx)
	if err != nil {
		return nil, err
	}
	return &answer, nil
}

func (s *Server) availableImages(ctx context.Context, _ *struct{}) (*out[[]client.AvailableImage], error) {
	return answer(s.o.Service.Images.Available(ctx), nil)
}

// objectPath names an object.
type objectPath struct {
	Kind string `path:"kind" maxLength:"32"`
	Name string `path:"name" maxLength:"512"`
}

// shownEvents bounds the events in an answer of show.
const shownEvents = 50

func (s *Server) show(ctx context.Context, p *objectPath) (*out[client.Object], error) {
	id := state.ID{Kind: p.Kind, Name: p.Name}
	o, err := s.o.Backend.Get(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.NotFound, "%s/%s is not there", fault.Clip(p.Kind, 32), fault.Clip(p.Name, 64))
	}
	if err != nil {
		return nil, err
	}
	events, err := s.lastEvents(ctx, o)
	if err != nil {
		return nil, err
	}
	return answer(objectView(o, events, callerFrom(ctx).role.allows(rightChange)))
}

// lastEvents returns the last shownEvents events of an object, oldest first. It
// leaves out events of a former object with the same name but another uid.
func (s *Server) lastEvents(ctx context.Context, o state.Object) (last []state.Event, err error) {
	q := state.EventQuery{Object: &o.ID, Limit: 2 * shownEvents, Newest: true}
	for {
		page, err := s.o.Backend.Events(ctx, q)
		if err != nil {
			return nil, err
		}
		full := len(page) == q.Limit
		if full {
			q.Before = page[0].Seq
		}
		page = slices.DeleteFunc(page, func(e state.Event) bool { return e.UID != "" && e.UID != o.UID })
		last = slices.Concat(page, last)
		last = last[max(0, len(last)-shownEvents):]
		if !full || len(last) == shownEvents {
			return last, nil
		}
	}
}

// eventsQuery selects events. Object is KIND/NAME or KIND.
type eventsQuery struct {
	After  int64  `query:"after" minimum:"0"`
	Object string `query:"object" maxLength:"256"`
	Limit  int    `query:"limit" minimum:"0" maximum:"10000"`
}

func (q eventsQuery) query() state.EventQuery {
	sq := state.EventQuery{After: q.After, Limit: q.Limit}
	if q.Object != "" {
		id, err := declare.ParseObject(q.Object)
		if err != nil {
			id = state.ID{Kind: q.Object}
		}
		sq.Object = &id
	}
	return sq
}

func (s *Server) events(ctx context.Context, q *eventsQuery) (*out[[]client.Event], error) {
	events, err := s.o.Backend.Events(ctx, q.query())
	if err != nil {
		return nil, err
	}
	rows := []client.Event{}
	for _, e := range events {
		rows = append(rows, eventRow(e))
	}
	return &out[[]client.Event]{rows}, nil
}

func (s *Server) doctor(ctx context.Context, _ *struct{}) (*out[[]client.Check], error) {
	checks, err := s.looks.doctor.get(ctx)
	if err != nil {
		return nil, err
	}
	held, err := s.heldNotice(ctx)
	if err != nil {
		return nil, err
	}
	if held != "" {
		checks = append(slices.Clone(checks), client.Check{Name: "removals", Result: "warning", Message: held, Mend: "declare them again, or allow their removal"})
	}
	return &out[[]client.Check]{orEmpty(checks)}, nil
}
