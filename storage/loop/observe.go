package loop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"hostler/internal/fault"
	"hostler/storage"
)

// List implements storage.VolumeSource. A volume with a damaged record or
// missing data is listed with its problem.
func (s *Source) List(context.Context) ([]storage.Volume, error) {
	ids, err := s.records.IDs()
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	devices, err := s.devices()
	if err != nil {
		return nil, err
	}
	var volumes []storage.Volume
	for _, id := range ids {
		rec, found, err := s.records.Get(id)
		switch {
		case fault.Is(err, fault.NeedsOperator):
			v := storage.Volume{Ref: storage.Ref{ID: id, Stamp: storage.Stamp{Namespace: s.o.Namespace}}, Path: s.image(id), Problem: err.Error()}
			volumes = append(volumes, v)
		case err != nil:
			return nil, err
		case found && rec.Stamp.Namespace == s.o.Namespace:
			volumes = append(volumes, s.volume(id, rec, devices))
		}
	}
	return volumes, nil
}

// DescribeVolumes implements storage.VolumeDescriber.
func (s *Source) DescribeVolumes(ctx context.Context, volumes []storage.Ref) []storage.Result[storage.Volume] {
	return storage.Each(ctx, volumes, s.describe)
}

func (s *Source) describe(_ context.Context, r storage.Ref) (storage.Volume, error) {
	rec, err := s.owned(r)
	if err != nil {
		return storage.Volume{}, fmt.Errorf("cannot describe the volume %s: %w", r.ID, err)
	}
	devices, err := s.devices()
	if err != nil {
		return storage.Volume{}, err
	}
	return s.volume(r.ID, rec, devices), nil
}

func (s *Source) volume(id string, rec record, devices []device) storage.Volume {
	v := storage.Volume{
		Ref: storage.Ref{ID: id, Stamp: rec.Stamp}, Size: rec.Size, Sparse: rec.Sparse, Path: s.image(id), Record: rec.Record,
	}
	size, allocated, err := fileSize(v.Path)
	v.Allocated = allocated
	switch {
	case rec.Destroying:
		// The stored declaration no longer applies.
		v.Problem, v.Record = "it is being destroyed", ""
	case errors.Is(err, fs.ErrNotExist):
		v.Problem = lost(v.Path).Error()
	case err != nil:
		v.Problem = err.Error()
	case size < rec.Size:
		v.Problem = fmt.Sprintf("%s has been cut from %d to %d bytes", v.Path, rec.Size, size)
	}
	info, _ := os.Lstat(v.Path)
	for _, d := range devices {
		if d.belongs(v.Ref, info) {
			v.Attachments = append(v.Attachments, s.attachment(d, v.Ref, info))
		}
	}
	// A file that is shorter than the volume may be a copy of the data under way.
	if d, attached := v.Device(); attached && !rec.Destroying && (errors.Is(err, fs.ErrNotExist) || d.Former && v.Problem != "") {
		v.Unlinked = true
		v.Problem += fmt.Sprintf("; until it is detached, %s has its data: stop its machines and run `sync && cp --sparse=always %[1]s %s`", d.Device, v.Path)
	}
	return v
}

// StoreRecords implements storage.Recorder.
func (s *Source) StoreRecords(ctx context.Context, objects []storage.RecordParams) []error {
	return storage.EachError(ctx, objects, storage.ExplainError("record the declaration of the volume", s.storeRecord))
}

func (s *Source) storeRecord(ctx context.Context, p storage.RecordParams) error {
	held, err := s.hold(ctx, p.ID)
	if err == nil {
		defer held.Close()
	}
	rec, err := s.owned(p.Ref)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case err != nil || rec.Record == p.Record:
		return err
	}
	rec.Record = p.Record
	return explain(s.records.Put(p.ID, rec), s.o.Dir)
}
