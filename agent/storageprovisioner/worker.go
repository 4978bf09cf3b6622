package storageprovisioner

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/storage"
)

// Options are the dependencies of a worker.
type Options struct {
	Sources Sources
	// Defaults is the configuration until the worker has read the host's
	// record.
	Defaults Config
	// Await is called before the worker reads the records; see recovery.Await. If
	// nil, no records were lost.
	Await func(ctx context.Context) error
	// Devices returns a channel that gets a value when a block device of the
	// host is added, changed or removed. If nil, there are no such events.
	Devices func(ctx context.Context) (<-chan struct{}, error)
	// WaitHolders waits until one of the processes has ended.
	WaitHolders func(ctx context.Context, holders []storage.Holder) error
	// Stage prepares the directory below which filesystems are mounted, or
	// undoes this if used is false, because nothing is declared. Idempotent. It
	// may be nil.
	Stage func(used bool) error
}

// Worker provisions the storage of the host.
type Worker struct {
	*reconcile.Frame
	Options
	config Config
	// decoded caches the decoded records.
	decoded decoder
	// seen holds the sources that were observed since the agent started.
	seen map[string]bool
	// had holds the machines of the last look, by name.
	had map[string]Machine
	// postponed holds the entities that had an event during their pause after a
	// failure, as KIND/NAME.
	postponed map[string]bool
	spaced    time.Time // when free space was last checked
	bare      bool      // nothing was declared at the last look

	nudges reconcile.Nudges // about entities, as KIND/NAME

	mu      sync.Mutex
	waiting map[string]bool // entities with a pending WaitHolders
	devices bool            // block devices changed since the last look
	quiet   time.Time       // the time until which device events are ignored
}

// New returns a worker. Call Prepare, then Run.
func New(c reconcile.Common, o Options) *Worker {
	c.Resync = cmp.Or(c.Resync, reconcile.DefaultResync)
	if o.Await == nil {
		o.Await = func(context.Context) error { return nil }
	}
	if o.Stage == nil {
		o.Stage = func(bool) error { return nil }
	}
	return &Worker{
		Frame: reconcile.NewFrame(c), Options: o, config: o.Defaults, decoded: newDecoder(),
		seen: map[string]bool{}, had: map[string]Machine{}, waiting: map[string]bool{},
	}
}

// Prepare observes the host once and updates the statuses without changing the
// host. After a restart of the host or agent, recorded devices and mounts may
// be missing, and no machine must start with stale paths. So call Prepare
// before any worker that starts machines.
func (w *Worker) Prepare(ctx context.Context) error {
	l, err := w.look(ctx)
	if err == nil {
		l.plan()
	} else { // without an observation no recorded device or mount is reliable
		l.observed.Blind = map[string]error{}
		for _, e := range l.desired.Entities {
			l.observed.Blind[e.Source] = err
		}
		l.planner = newPlanner(l.desired, l.observed, l.policy)
	}
	_, unwritten := w.assess(ctx, &l)
	return errors.Join(err, unwritten)
}

// Run runs passes until ctx ends. It returns an error if the watch on the store
// is lost. The supervisor then starts Run again.
func (w *Worker) Run(ctx context.Context) error {
	return w.Frame.Run(ctx, reconcile.Work{
		Objects: "storage", Kinds: storageKinds(), Pass: w.converge, Begin: w.followDevices,
		Changed: func(_ context.Context, ids []state.ID) {
			if slices.ContainsFunc(ids, func(id state.ID) bool { return id.Kind != spec.KindMachine }) {
				w.Signal()
			} else {
				w.SignalSpaced(machinesGather)
			}
		},
	})
}

// converge observes, plans and acts until no step is due. It returns the time
// of the next retry.
func (w *Worker) converge(ctx context.Context) (time.Time, error) {
	done := map[string]error{}
	nudged := w.nudges.Take()
	for {
		l, err := w.look(ctx)
		if err != nil {
			return time.Time{}, err
		}
		again := w.nudge(l, nudged)
		l.policy.Nudged = nudged
		l.plan()
		withdrew, err := w.assess(ctx, &l)
		if err != nil {
			return time.Time{}, err
		}
		w.updateRecords(ctx, l)
		if err := w.stage(&l); err != nil {
			return time.Time{}, err
		}
		acted, err := w.act(ctx, &l, done)
		if err != nil || ctx.Err() != nil {
			return time.Time{}, err
		}
		if !acted && !withdrew {
			w.space(ctx, l)
			w.overruled(l)
			return reconcile.Earliest(nextRetry(l), again), nil
		}
		if acted { // a nudge permits one attempt
			nudged = map[string]bool{}
		}
	}
}

// stage calls Stage(true) before steps are carried out, and Stage(false) once
// after the last declared volume or filesystem is gone.
func (w *Worker) stage(l *look) error {
	used := len(l.desired.Entities) > 0
	due := slices.ContainsFunc(l.steps, func(s Step) bool { return s.due(l.policy.Now) })
	if used && !due || !used && w.bare {
		return nil
	}
	w.bare = !used
	return w.Stage(used)
}

// nextRetry returns the time of the earliest delayed step, or zero. A step that
// is still due was already tried in this pass and waits leastWait.
func nextRetry(l look) (next time.Time) {
	for _, s := range l.steps {
		switch {
		case s.due(l.policy.Now):
			next = reconcile.Earliest(next, l.policy.Now.Add(leastWait))
		case s.Waiting == "" && s.Held == "":
			next = reconcile.Earliest(next, s.After)
		}
	}
	return next
}

// assess writes the changed statuses in one call and reports whether it
// withdrew an offer. If so, the pass looks again and can then detach the
// storage.
func (w *Worker) assess(ctx context.Context, l *look) (withdrew bool, err error) {
	var writes reconcile.Batch
	statuses := l.planner.assess(l.steps)
	for i := range l.desired.Entities {
		e, s := &l.desired.Entities[i], statuses[i]
		if l.observed.Blind[e.Source] == nil {
			w.seen[e.Source] = true
		} else if !w.seen[e.Source] {
			s = unverified(s)
		}
		writes.Status(e.id(), e.UID, e.Status, s)
		for machine, a := range e.Status.Attachments {
			withdrew = withdrew || a.Source != "" && s.Attachments[machine].Source == ""
		}
		e.Status = s
	}
	return withdrew, w.Write(ctx, writes)
}

// space sets a notice when a filesystem of the host fills up. It checks at most
// once per Resync.
func (w *Worker) space(ctx context.Context, l look) {
	if l.policy.Now.Sub(w.spaced) < w.Resync {
		return
	}
	w.spaced = l.policy.Now
	report := func(name string, source any) {
		reporter, ok := source.(storage.SpaceReporter)
		if !ok {
			return
		}
		text := ""
		if space, err := reporter.Space(ctx); err == nil {
			text = space.Warning()
		}
		w.Notice("space of "+name, text)
	}
	for name, source := range w.Sources.Volumes {
		report(name, source)
	}
	for name, source := range w.Sources.Filesystems {
		report(name, source)
	}
}
