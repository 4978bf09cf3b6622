package api

import (
	"context"
	"maps"
	"slices"
	"strings"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/internal/fault"
	"hostler/storage"
)

// devicePath returns the path of a volume's device inside a machine.
func devicePath(volume string) string { return "/dev/hostler-" + volume }

func (s *Server) attachments(ctx context.Context, _ *struct{}) (*out[[]client.AttachmentRow], error) {
	objects, _, err := s.o.Backend.List(ctx, spec.KindFilesystem, spec.KindMachine, spec.KindVolume)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{} // the mount points of filesystems in machines, by NAME@MACHINE
	for _, o := range objects {
		var rec spec.MachineRecord
		if o.Kind != spec.KindMachine {
			continue
		}
		if err := o.Decode(&rec, nil); err != nil {
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
		if err := o.Decode(nil, &st); err != nil {
			return nil, err
		}
		for _, machine := range slices.Sorted(maps.Keys(st.Attachments)) {
			a := st.Attachments[machine]
			row := client.AttachmentRow{
				Name: o.Kind + "/" + o.Name + "@" + machine, Object: o.Kind + "/" + o.Name, Machine: machine, Path: paths[o.Name+"@"+machine],
				Source: a.Source, ReadOnly: a.ReadOnly, Status: a.State, Message: a.Message, Attempts: a.Attempts.Count, NextRetry: a.Attempts.NextRetry,
			}
			if o.Kind == spec.KindVolume {
				row.Path = devicePath(o.Name)
			}
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b client.AttachmentRow) int { return strings.Compare(a.Name, b.Name) })
	return &out[[]client.AttachmentRow]{rows}, nil
}

func (s *Server) blockDevices(ctx context.Context, _ *struct{}) (*out[[]client.BlockDevice], error) {
	rows, err := s.looks.blockDevices.get(ctx)
	return answer(orEmpty(rows), err)
}

type resizeInput struct {
	Name string `path:"name" maxLength:"253"`
	Body client.ResizeRequest
}

func (s *Server) resizeVolume(ctx context.Context, i *resizeInput) (*struct{}, error) {
	size, err := spec.ParseSize(i.Body.Size)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot resize volume/%s: %v", fault.Clip(i.Name, 64), err)
	}
	rounded := spec.Size(storage.RoundSize(int64(size)))
	return nil, s.rewrite(ctx, false, func(w *declare.State) error { return w.Resize(i.Name, size, rounded) })
}
