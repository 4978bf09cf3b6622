package storageprovisioner

import (
	"context"

	"hostler/agent/spec"
	"hostler/storage"
)

// updateRecords updates the copies of records that sources store beside the
// stamps. The recovery rebuilds a lost store from these copies. The updates are
// not steps of a plan, because they change neither volumes nor filesystems.
func (w *Worker) updateRecords(ctx context.Context, l look) {
	p := newPlanner(l.desired, l.observed, l.policy)
	stale, of := map[storage.Recorder][]storage.RecordParams{}, map[storage.Recorder][]string{}
	for i := range l.desired.Entities {
		e := &l.desired.Entities[i]
		recorder := w.recorder(e)
		if recorder == nil || !p.outdated(e) {
			continue
		}
		stale[recorder] = append(stale[recorder], storage.RecordParams{Ref: e.ref(l.policy.Namespace), Record: e.Record})
		of[recorder] = append(of[recorder], e.key())
	}
	for recorder, params := range stale {
		for i, err := range recorder.StoreRecords(ctx, params) {
			if err != nil && ctx.Err() == nil {
				w.Logger.Warn("The declaration cannot be stored next to the data.", "object", of[recorder][i], "error", err)
			}
		}
	}
}

// outdated reports whether the source's copy of the record differs from the
// record. It returns false for entities that are missing or damaged on the
// host.
func (p *planner) outdated(e *Entity) bool {
	if e.Kind == spec.KindVolume {
		v := p.volumesSeen[e.Name]
		return v != nil && v.Problem == "" && v.Record != e.Record
	}
	f := p.seen[e.Name]
	return f != nil && f.Problem == "" && f.Record != e.Record
}

// recorder returns the entity's source if the source stores copies of records,
// else nil.
func (w *Worker) recorder(e *Entity) storage.Recorder {
	var r storage.Recorder
	if e.Kind == spec.KindVolume {
		r, _ = w.Sources.Volumes[e.Source].(storage.Recorder)
	} else {
		r, _ = w.Sources.Filesystems[e.Source].(storage.Recorder)
	}
	return r
}

// clearRecords clears the source's copies of the records of released data, so
// that recovery does not declare the data again.
func (w *Worker) clearRecords(ctx context.Context, namespace string, jobs []*job) []error {
	r := w.recorder(jobs[0].entity)
	if r == nil {
		return make([]error, len(jobs))
	}
	return r.StoreRecords(ctx, mapped(jobs, func(j *job) storage.RecordParams {
		return storage.RecordParams{Ref: j.entity.ref(namespace)}
	}))
}
