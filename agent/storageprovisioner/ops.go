package storageprovisioner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/idmap"
)

// call carries out jobs of the same action and source in one bulk call. It
// returns an error or nil for each job, in order.
func (w *Worker) call(ctx context.Context, p *planner, jobs []*job) []error {
	switch jobs[0].step.Action {
	case ActionAdopt: // only the record changes
		return make([]error, len(jobs))
	case ActionForget:
		return mapped(jobs, func(j *job) error { return w.forget(ctx, p, j) })
	case ActionRelease:
		return w.clearRecords(ctx, p.policy.Namespace, jobs)
	case ActionShow:
		return errorsOf(w.Sources.Views.Show(ctx, mapped(jobs, func(j *job) idmap.Params {
			_, a := p.relation(j.entity, j.step.Machine)
			return p.view(j.entity, j.step.Machine, a)
		})))
	case ActionHide:
		return w.Sources.Views.Hide(ctx, mapped(jobs, func(j *job) idmap.HideParams {
			return idmap.HideParams{Path: p.policy.viewPath(j.step.Machine, j.entity.Name), Force: j.entity.Force}
		}))
	}
	e := jobs[0].entity
	if e.Kind == spec.KindVolume {
		return w.callVolumes(ctx, p, w.Sources.Volumes[e.Source], jobs)
	}
	return w.callFilesystems(ctx, p, w.Sources.Filesystems[e.Source], jobs)
}

// forget removes the file of a volume whose creation was cut short: no list shows it.
func (w *Worker) forget(ctx context.Context, p *planner, j *job) error {
	e := j.entity
	source, ok := w.Sources.Volumes[e.Source]
	if !ok || e.Kind != spec.KindVolume || e.Status.Created || e.Retain || p.policy.Leave {
		return nil
	}
	err := source.Destroy(ctx, refs(p.policy.Namespace, []*job{j}))[0]
	if fault.Is(err, fault.Conflict) { // somebody else's data, which was never this volume's
		return nil
	}
	return err
}

func (w *Worker) callVolumes(ctx context.Context, p *planner, source storage.VolumeSource, jobs []*job) []error {
	ns := p.policy.Namespace
	switch jobs[0].step.Action {
	case ActionCreate:
		params := mapped(jobs, func(j *job) storage.VolumeParams {
			e := j.entity
			return storage.VolumeParams{
				Ref: e.ref(ns), Size: e.Size, Sparse: e.Volume.Allocation == spec.AllocationSparse,
				Record: e.Record, Progress: w.progress(ctx, e, "allocated"),
			}
		})
		var check func(storage.VolumeParams) error
		if v, ok := source.(storage.VolumeValidator); ok {
			check = v.ValidateVolume
		}
		return valid(params, check, func(p []storage.VolumeParams) []error { return errorsOf(source.Create(ctx, p)) })
	case ActionGrow:
		grower, ok := source.(storage.VolumeGrower)
		if !ok {
			return all(jobs, fault.New(fault.Invalid, "volumes of this provider cannot grow"))
		}
		return errorsOf(grower.GrowVolumes(ctx, w.grown(ctx, ns, jobs)))
	case ActionAttach:
		return errorsOf(source.Attach(ctx, mapped(jobs, func(j *job) storage.VolumeAttachParams {
			return storage.VolumeAttachParams{Ref: j.entity.ref(ns), ReadOnly: p.readOnly(j.entity)}
		})))
	case ActionDetach:
		return source.Detach(ctx, mapped(jobs, func(j *job) storage.DetachParams {
			return storage.DetachParams{Ref: j.entity.ref(ns), Force: j.entity.Force}
		}))
	case ActionDestroy:
		return source.Destroy(ctx, refs(ns, jobs))
	}
	return all(jobs, fault.New(fault.Invalid, "cannot %s a volume", jobs[0].step.Action))
}

func (w *Worker) callFilesystems(ctx context.Context, p *planner, source storage.FilesystemSource, jobs []*job) []error {
	ns := p.policy.Namespace
	device := func(j *job) string { d, _ := p.deviceOf(j.entity); return d }
	switch jobs[0].step.Action {
	case ActionCreate:
		params := mapped(jobs, func(j *job) storage.FilesystemParams {
			e := j.entity
			return storage.FilesystemParams{
				Ref: e.ref(ns), Size: e.Size, Type: e.fstype(), Device: device(j), Wipe: e.Filesystem.Wipe,
				// After a loss of its data, the filesystem is created again
				// only if the operator asked for it.
				Anew: e.Status.Created, Record: e.Record, Progress: w.words(ctx, e),
			}
		})
		var check func(storage.FilesystemParams) error
		if v, ok := source.(storage.FilesystemValidator); ok {
			check = v.ValidateFilesystem
		}
		return valid(params, check, func(p []storage.FilesystemParams) []error { return errorsOf(source.Create(ctx, p)) })
	case ActionGrow:
		grower, ok := source.(storage.FilesystemGrower)
		if !ok {
			return all(jobs, fault.New(fault.Invalid, "filesystems of this provider cannot grow"))
		}
		return errorsOf(grower.GrowFilesystems(ctx, w.grown(ctx, ns, jobs)))
	case ActionAttach:
		errs := errorsOf(source.Attach(ctx, mapped(jobs, func(j *job) storage.FilesystemAttachParams {
			e := j.entity
			return storage.FilesystemAttachParams{
				Ref: e.ref(ns), Path: p.policy.mountPath(e.Name), Device: device(j), Options: e.Filesystem.MountOptions,
			}
		})))
		for i, err := range errs {
			if fault.Is(err, fault.NotFound) {
				e := jobs[i].entity
				errs[i] = fault.New(fault.NotFound, "its data is gone from %s; `hostler retry %s` makes it again, empty", e.place(), e.key())
			}
		}
		return errs
	case ActionDetach:
		return source.Detach(ctx, mapped(jobs, func(j *job) storage.DetachParams {
			return storage.DetachParams{Ref: j.entity.ref(ns), Path: p.policy.mountPath(j.entity.Name), Force: j.entity.Force}
		}))
	case ActionDestroy:
		return source.Destroy(ctx, refs(ns, jobs))
	}
	return all(jobs, fault.New(fault.Invalid, "cannot %s a filesystem", jobs[0].step.Action))
}

func (w *Worker) grown(ctx context.Context, namespace string, jobs []*job) []storage.GrowParams {
	return mapped(jobs, func(j *job) storage.GrowParams {
		size := j.entity.Size
		if size == 0 {
			size = j.entity.Status.Size // a filesystem on a volume grows to the volume's size, and the source ignores this size
		}
		return storage.GrowParams{Ref: j.entity.ref(namespace), Size: size, Progress: w.progress(ctx, j.entity, "grown")}
	})
}

// progress returns a function that shows the progress of a long operation in
// the entity's status, e.g. "allocated 40 %".
func (w *Worker) progress(ctx context.Context, e *Entity, word string) func(done, total int64) {
	show := w.words(ctx, e)
	return func(done, total int64) {
		if total > 0 && done < total {
			show(fmt.Sprintf("%s %d %%", word, done*100/total))
		}
	}
}

// words returns a function that shows a text in the entity's status. To spare
// the store, it drops a text that comes within progressInterval after the last
// one.
func (w *Worker) words(ctx context.Context, e *Entity) func(string) {
	var mu sync.Mutex
	shown, status := w.Now(), e.Status
	return func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if now := w.Now(); now.Sub(shown) >= progressInterval {
			shown, status.Message = now, text
			w.Progress(ctx, reconcile.StatusWrite(e.id(), e.UID, status))
		}
	}
}

// progressInterval is the shortest time between two written progress texts.
const progressInterval = 500 * time.Millisecond

// valid checks each item and passes only the valid items to call, so that an
// invalid item does not make the others fail.
func valid[P any](params []P, check func(P) error, call func([]P) []error) []error {
	if check == nil {
		return call(params)
	}
	errs := make([]error, len(params))
	var good []P
	var at []int
	for i, p := range params {
		if errs[i] = check(p); errs[i] == nil {
			good, at = append(good, p), append(at, i)
		}
	}
	if len(good) == 0 {
		return errs
	}
	for i, err := range call(good) {
		errs[at[i]] = err
	}
	return errs
}

func refs(namespace string, jobs []*job) []storage.Ref {
	return mapped(jobs, func(j *job) storage.Ref { return j.entity.ref(namespace) })
}

func mapped[T any](jobs []*job, one func(*job) T) []T {
	list := make([]T, len(jobs))
	for i, j := range jobs {
		list[i] = one(j)
	}
	return list
}

func errorsOf[T any](results []storage.Result[T]) []error {
	errs := make([]error, len(results))
	for i, r := range results {
		errs[i] = r.Err
	}
	return errs
}

func all(jobs []*job, err error) []error {
	errs := make([]error, len(jobs))
	for i := range errs {
		errs[i] = err
	}
	return errs
}
