package api

import (
	"context"
	"slices"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

func (s *Server) status(ctx context.Context, _ *struct{}) (*out[client.Status], error) {
	g, err := s.o.Service.Host.Report(ctx)
	if err != nil {
		return nil, err
	}
	objects, _, err := s.o.Backend.List(ctx, spec.KindMachine, spec.KindContainerType, spec.KindHost)
	if err != nil {
		return nil, err
	}
	st := client.Status{
		Version: s.o.Version, Namespace: s.o.Namespace, Started: g.Started, Harvest: g.Harvest,
		Workers: orEmpty(g.Workers), Machines: map[string]int{}, Drifted: []string{}, Unknown: orEmpty(g.Unknown),
		UnknownStorage: orEmpty(g.UnknownStorage),
		Locks:          orEmpty(g.Locks), Disk: orEmpty(g.Disk), Notices: orEmpty(g.Notices), Guard: g.Guard,
	}
	held, err := s.heldNotice(ctx)
	if err != nil {
		return nil, err
	}
	if held != "" {
		st.Notices = append(slices.Clone(st.Notices), held)
	}
	types := map[string]*state.Object{}
	for i, o := range objects {
		switch o.Kind {
		case spec.KindMachine:
			row, err := machineRow(o)
			if err != nil {
				return nil, err
			}
			st.Machines[string(row.Status)]++
			if !row.Observed || spec.Differs(row.Conditions) {
				st.Drifted = append(st.Drifted, o.Name)
			}
		case spec.KindContainerType:
			types[o.Name] = &objects[i]
		case spec.KindHost:
			var rec spec.HostRecord
			if err := decodeObject(o, &rec, nil); err != nil {
				return nil, err
			}
			if rec.Harvest != "" {
				st.Harvest = rec.Harvest
			}
		}
	}
	for _, t := range spec.ContainerTypes() {
		row, err := typeRow(t.Type, types[string(t.Type)])
		if err != nil {
			return nil, err
		}
		st.Types = append(st.Types, row)
	}
	return &out[client.Status]{st}, nil
}

func (s *Server) harvest(ctx context.Context, _ *struct{}) (*out[client.Harvest], error) {
	g, err := s.o.Service.Host.Report(ctx)
	if err != nil {
		return nil, err
	}
	_, rec, err := s.hostRecord(ctx)
	if err != nil {
		return nil, err
	}
	h := client.Harvest{Mode: g.Harvest, Configured: g.Harvest, Override: rec.Harvest}
	if rec.Harvest != "" {
		h.Mode = rec.Harvest
	}
	return &out[client.Harvest]{h}, nil
}

func (s *Server) setHarvest(ctx context.Context, i *in[client.HarvestRequest]) (*out[client.Harvest], error) {
	err := s.updateRecord(ctx, state.ID{Kind: spec.KindHost, Name: spec.HostName}, func(o *state.Object) (any, error) {
		var rec spec.HostRecord
		if o != nil {
			if err := decodeObject(*o, &rec, nil); err != nil {
				return nil, err
			}
		}
		rec.Harvest = i.Body.Mode
		return rec, nil
	})
	if err != nil {
		return nil, err
	}
	return s.harvest(ctx, nil)
}

// hostRecord returns the host object, nil if it does not exist yet.
func (s *Server) hostRecord(ctx context.Context) (*state.Object, spec.HostRecord, error) {
	var rec spec.HostRecord
	o, err := s.o.Backend.Get(ctx, state.ID{Kind: spec.KindHost, Name: spec.HostName})
	if fault.Is(err, fault.NotFound) {
		return nil, rec, nil
	}
	if err != nil {
		return nil, rec, err
	}
	return &o, rec, decodeObject(o, &rec, nil)
}

// updateRecord changes the spec of an object without a declaration, e.g. the
// host. It creates an absent object (change then gets nil) and retries after a
// conflicting write.
func (s *Server) updateRecord(ctx context.Context, id state.ID, change func(*state.Object) (any, error)) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for try := 1; ; try++ {
		var old *state.Object
		w := state.Write{ID: id}
		o, err := s.o.Backend.Get(ctx, id)
		switch {
		case err == nil:
			old, w.Revision, w.UID = &o, o.Revision, o.UID
		case !fault.Is(err, fault.NotFound):
			return err
		}
		rec, err := change(old)
		if err != nil {
			return err
		}
		w.Spec = spec.Encode(rec)
		err = s.commit(ctx, []state.Write{w})
		raced := fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound)
		if !raced || try == declareTries {
			return err
		}
	}
}
