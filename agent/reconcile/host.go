package reconcile

import (
	"context"
	"fmt"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// Host reads and changes the single host object.
type Host struct{ Store state.Backend }

var hostID = state.ID{Kind: spec.KindHost, Name: spec.HostName}

// Read returns the host's record and status, both empty before the first
// Update, and their revision.
func (h Host) Read(ctx context.Context) (record spec.HostRecord, status spec.HostStatus, revision int64, err error) {
	o, err := h.Store.Get(ctx, hostID)
	switch {
	case fault.Is(err, fault.NotFound):
		return record, status, 0, nil
	case err != nil:
		return record, status, 0, fmt.Errorf("cannot read the host's record: %w", err)
	}
	return record, status, o.Revision, o.Decode(&record, &status)
}

// Update changes the host's record and status. It repeats the change after a
// conflict with another write, at most four times.
func (h Host) Update(ctx context.Context, change func(*spec.HostRecord, *spec.HostStatus)) error {
	for try := 1; ; try++ {
		record, status, revision, err := h.Read(ctx)
		if err != nil {
			return err
		}
		change(&record, &status)
		_, err = h.Store.Write(ctx, state.Atomic, state.Write{
			ID: hostID, Revision: revision, Life: state.Alive, Spec: spec.Encode(record), Status: spec.Encode(status),
		})
		switch {
		case err == nil:
			return nil
		case try == 5 || !fault.Is(err, fault.Conflict):
			return fmt.Errorf("cannot write the host's record: %w", err)
		}
	}
}
