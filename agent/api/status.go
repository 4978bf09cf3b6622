package api

import (
	"cmp"
	"context"
	"slices"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
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
		Moved: orEmpty(g.Moved), UnknownStorage: orEmpty(g.UnknownStorage),
		Locks: orEmpty(g.Locks), Disk: orEmpty(g.Disk), Notices: orEmpty(g.Notices), Guard: g.Guard,
	}
	held, err := s.heldNotice(ctx)
	if err != nil {
		return nil, err
	}
	if st.Held = held; held != "" {
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
			if err := o.Decode(&rec, nil); err != nil {
				return nil, err
			}
			if rec.Harvest != "" {
				st.Harvest = rec.Harvest
			}
			st.Copied = rec.Recovery.Copied()
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
	rec, _, _, err := reconcile.Host{Store: s.o.Backend}.Read(ctx)
	if err != nil {
		return nil, err
	}
	return &out[client.Harvest]{client.Harvest{Mode: cmp.Or(rec.Harvest, g.Harvest), Configured: g.Harvest, Override: rec.Harvest}}, nil
}

func (s *Server) setHarvest(ctx context.Context, i *in[client.HarvestRequest]) (*out[client.Harvest], error) {
	if err := s.set(ctx, func(w *declare.State) error { return w.SetHarvest(i.Body.Mode) }); err != nil {
		return nil, err
	}
	return s.harvest(ctx, nil)
}
