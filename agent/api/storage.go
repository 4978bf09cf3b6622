package api

import (
	"context"
	"maps"
	"slices"
	"strings"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/storage"
)

// DevicePath returns the path of a volume in a machine.
func DevicePath(volume string) string { return "/dev/hostler-" + volume }

func (s *Server) attachments(ctx context.Context, _ *struct{}) (*out[[]client.AttachmentRow], error) {
	objects, _, err := s.o.Backend.List(ctx, spec.KindFilesystem, spec.KindMachine, spec.KindVolume)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{} // mount points in machines, by NAME@MACHINE
	for _, o := range objects {
		var rec spec.MachineRecord
		if o.Kind != spec.KindMachine {
			continue
		}
		if err := decodeObject(o, &rec, nil); err != nil {
			return nil, err
		}
		for _, a := range rec.Machine.Storage {
			paths[a.Filesystem+"@"+o.Name] = a.Path
		}
	}
	rows := []client.AttachmentRow{}
	for _, o := range objects {
		var st spec.StorageStatus
		if o.Kind == spec.KindMachine {
			continue
		}
		if err := decodeObject(o, nil, &st); err != nil {
			return nil, err
		}
		for _, machine := range slices.Sorted(maps.Keys(st.Attachments)) {
			a := st.Attachments[machine]
			row := client.AttachmentRow{
				Name: o.Kind + "/" + o.Name + "@" + machine, Object: o.Kind + "/" + o.Name, Machine: machine, Path: paths[o.Name+"@"+machine],
				Source: a.Source, ReadOnly: a.ReadOnly, Status: a.State, Message: a.Message, Attempts: a.Attempts.Count, NextRetry: a.Attempts.NextRetry,
			}
			if o.Kind == spec.KindVolume {
				row.Path = DevicePath(o.Name)
			}
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b client.AttachmentRow) int { return strings.Compare(a.Name, b.Name) })
	return &out[[]client.AttachmentRow]{rows}, nil
}

func (s *Server) blockDevices(ctx context.Context, _ *struct{}) (*out[[]client.BlockDevice], error) {
	rows, err := s.looks.blockDevices.get(ctx)
	if err != nil {
		return nil, err
	}
	return &out[[]client.BlockDevice]{orEmpty(rows)}, nil
}

type resizeInput struct {
	Name string `path:"name" maxLength:"253"`
	Body client.ResizeRequest
}

func (s *Server) resizeVolume(ctx context.Context, i *resizeInput) (*struct{}, error) {
	size, err := spec.ParseSize(i.Body.Size)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot resize volume/%s: %v", raw.Clip(i.Name, 64), err)
	}
	return nil, s.rewrite(ctx, false, func(w *declaredState) error { return w.resizeVolume(i.Name, size) })
}

// resizeVolume changes the size of a volume in its record and in its document.
func (w *declaredState) resizeVolume(name string, size spec.Size) error {
	g := w.dependencies[state.ID{Kind: spec.KindVolume, Name: name}]
	if g == nil {
		return fault.New(fault.NotFound, "volume/%s is not there", raw.Clip(name, 64))
	}
	if g.life != state.Alive {
		return fault.New(fault.NotReady, "volume/%s is being removed", name)
	}
	var r spec.VolumeRecord
	var status spec.StorageStatus
	if err := decodeObject(state.Object{ID: state.ID{Kind: spec.KindVolume, Name: name}, Spec: g.now, Status: g.before.Status}, &r, &status); err != nil {
		return err
	}
	// A declared size that the volume never reached may be reduced again.
	has := r.Volume.Size
	if status.Created && status.Size > 0 {
		has = spec.Size(status.Size)
	}
	if storage.RoundSize(int64(size)) < int64(has) {
		return fault.New(fault.Invalid, "cannot resize volume/%s: it has %s and cannot shrink to %s: its data may not fit", name, has, size)
	}
	if r.Held != "" {
		return fault.New(fault.Conflict, "cannot resize volume/%s: no document declares it any more; declare it, and change its size there", name)
	}
	if d := w.declarations[w.owners[spec.KindVolume+"/"+name]]; d != nil && !d.gone {
		if isFile(d.record.Source) {
			return fault.New(fault.Conflict, "cannot resize volume/%s: it is declared in %s; change its size there", name, d.record.Source)
		}
		// The map belongs to the stored record: change a copy.
		volumes := maps.Clone(d.record.Document.Volumes)
		v := volumes[name]
		v.Size = size
		volumes[name] = v
		d.record.Document.Volumes = volumes
	}
	r.Volume.Size = size
	g.now = spec.Encode(r)
	return nil
}
