package api

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
)

// rowsOf returns a handler that answers with the rows of a kind's objects.
func rowsOf[T any](s *Server, kind string, row func(state.Object) (T, error)) func(context.Context, *struct{}) (*out[[]T], error) {
	return func(ctx context.Context, _ *struct{}) (*out[[]T], error) { return answer(listRows(ctx, s, kind, row)) }
}

// listRows returns the rows of a kind's objects.
func listRows[T any](ctx context.Context, s *Server, kind string, row func(state.Object) (T, error)) ([]T, error) {
	objects, _, err := s.o.Backend.List(ctx, kind)
	rows := []T{}
	for _, o := range objects {
		r, err := row(o)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, err
}

func volumeRow(o state.Object) (client.Storage, error) {
	var rec spec.VolumeRecord
	row, err := storageRow(o, &rec)
	row.Provider, row.Declaration = rec.Volume.Provider, rec.Declaration
	heldRow(o, rec.Held, &row.Message)
	row.Size = cmp.Or(row.Size, int64(rec.Volume.Size))
	return row, err
}

func filesystemRow(o state.Object) (client.Storage, error) {
	var rec spec.FilesystemRecord
	row, err := storageRow(o, &rec)
	row.Provider, row.Declaration = rec.Filesystem.Provider, rec.Declaration
	heldRow(o, rec.Held, &row.Message)
	if rec.Filesystem.Volume != "" {
		row.Provider = "managed"
	}
	row.Size = cmp.Or(row.Size, int64(rec.Filesystem.Size))
	return row, err
}

// storageRow decodes the record into rec and returns a row with the fields from
// the status.
func storageRow(o state.Object, rec any) (client.Storage, error) {
	var st spec.StorageStatus
	if err := o.Decode(rec, &st); err != nil {
		return client.Storage{}, err
	}
	row := client.Storage{
		Name: o.Name, Size: st.Size, Status: st.State, Device: st.Device, Path: st.Path, Attachments: []client.Attachment{},
		Message: st.Message, Life: string(o.Life), Attempts: st.Attempts.Count, NextRetry: st.Attempts.NextRetry,
		ErrorKind: st.Attempts.ErrorKind, UID: o.UID, Observed: st.ObservedGeneration == o.Generation, Conditions: orEmpty(st.Conditions),
	}
	row.Status = cmp.Or(row.Status, spec.StoragePending)
	for _, machine := range slices.Sorted(maps.Keys(st.Attachments)) {
		a := st.Attachments[machine]
		row.Attachments = append(row.Attachments, client.Attachment{Machine: machine, Status: a.State, Source: a.Source, ReadOnly: a.ReadOnly, Message: a.Message})
	}
	return row, nil
}

func networkRow(o state.Object) (client.Network, error) {
	var rec spec.NetworkRecord
	var st spec.NetworkStatus
	if err := o.Decode(&rec, &st); err != nil {
		return client.Network{}, err
	}
	row := client.Network{
		Name: o.Name, Bridge: rec.Network.Bridge, Addresses: orEmpty(rec.Network.Addresses), Status: st.State, Message: st.Message,
		Guests: map[string][]string{}, Life: string(o.Life), Attempts: st.Attempts.Count, NextRetry: st.Attempts.NextRetry,
		ErrorKind: st.Attempts.ErrorKind, Declaration: rec.Declaration, UID: o.UID, Observed: st.ObservedGeneration == o.Generation, Conditions: orEmpty(st.Conditions),
	}
	heldRow(o, rec.Held, &row.Message)
	switch {
	case o.Life != state.Alive:
		row.Status = "dying"
	case row.Status == "":
		row.Status = "pending"
	}
	for nic, g := range st.Guests {
		if g.Released == nil {
			row.Guests[nic] = g.Addresses
		}
	}
	return row, nil
}
