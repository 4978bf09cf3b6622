package storageprovisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/storage"
)

// Metrics counts passes and operations.
type Metrics interface {
	Pass(took time.Duration, err error)
	Operation(action string, took time.Duration, err error)
}

// Options are the dependencies of a worker.
type Options struct {
	Store   state.Backend
	Sources Sources
	// Defaults are the configuration until the host object is read.
	Defaults Config
	// Unfound names a container type that may run machines without a record
	// after the loss of the store; "" if there are none. Nil: always none.
	Unfound func(ctx context.Context) string
	// Devices sends a value when a block device of the host is added, changed
	// or removed; nil: no events.
	Devices func(ctx context.Context) (<-chan struct{}, error)
	// WaitHolders returns when one of the processes has ended.
	WaitHolders func(ctx context.Context, holders []storage.Holder) error
	// Stage prepares the directory below which filesystems are mounted, or
	// gives it up when nothing is declared; idempotent. Nil: nothing to
	// prepare.
	Stage func(used bool) error
	// Notice sets or clears (with "") a notice in the host's status; nil:
	// notices are dropped.
	Notice  func(key, text string)
	Metrics Metrics
	Now     func() time.Time
	Logger  *slog.Logger
	// Resync is the longest time between two passes; 0: 2 min.
	Resync time.Duration
}

// Worker provisions the storage of the host.
type Worker struct {
	Options
	waker  *reconcile.Waker
	config Config
	// decoded are the records as last read.
	decoded decoder
	// seen are the sources that were observed since the agent started.
	seen map[string]bool
	// had are the machines of the last look, by name.
	had map[string]Machine
	// postponed are the entities that had an event during their pause after a
	// failure.
	postponed map[string]bool
	spaced    time.Time // when free space was last checked
	bare      bool      // nothing was declared at the last look
	waits     sync.WaitGroup

	mu      sync.Mutex
	nudged  map[string]bool
	waiting map[string]bool // entities with a pending WaitHolders
	devices bool            // block devices changed
	quiet   time.Time       // until then, device events are the worker's own
}

// New returns a worker; Prepare and Run start it.
func New(o Options) *Worker {
	if o.Resync == 0 {
		o.Resync = 2 * time.Minute
	}
	if o.Notice == nil {
		o.Notice = func(string, string) {}
	}
	if o.Unfound == nil {
		o.Unfound = func(context.Context) string { return "" }
	}
	if o.Stage == nil {
		o.Stage = func(bool) error { return nil }
	}
	return &Worker{
		Options: o, waker: reconcile.NewWaker(), config: o.Defaults, decoded: decoder{},
		seen: map[string]bool{}, had: map[string]Machine{}, nudged: map[string]bool{}, waiting: map[string]bool{},
	}
}

// Prepare observes the host once and updates the statuses without changing the
// host. Devices and mounts of the last run may be missing after a restart of
// the host or agent, and no machine may start with stale paths. Prepare runs
// before any worker that starts machines.
func (w *Worker) Prepare(ctx context.Context) error {
	l, err := w.look(ctx)
	if err != nil {
		// The host cannot be observed: no device and no mount is certain.
		return errors.Join(err, w.distrust(ctx))
	}
	l.steps = Plan(l.desired, l.observed, l.policy)
	_, err = w.assess(ctx, &l)
	return err
}

// distrust clears the sources of all attachments in the statuses.
func (w *Worker) distrust(ctx context.Context) error {
	objects, _, err := w.Store.List(ctx, spec.KindVolume, spec.KindFilesystem)
	if err != nil {
		return fmt.Errorf("cannot read the declared storage: %w", err)
	}
	desired, err := Decode(objects)
	if err != nil {
		return err
	}
	var writes []state.Write
	for i := range desired.Entities {
		e := &desired.Entities[i]
		writes = append(writes, statusWrite(e, unverified(e.Status)))
	}
	return w.write(ctx, writes)
}

// Run works until ctx ends. It returns an error when the watch on the store is
// lost; the supervisor then starts it again.
func (w *Worker) Run(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer w.waits.Wait()
	defer cancel()
	ids, err := w.Store.Watch(ctx, Kinds()...)
	if err != nil {
		return reconcile.Ended(parent, fmt.Errorf("cannot watch the declared storage: %w", err))
	}
	go func() {
		defer cancel()
		for range ids {
			w.waker.Signal()
		}
	}()
	if err := w.followDevices(ctx); err != nil {
		w.Logger.Warn("Block devices cannot be watched; the agent polls them.", "error", err)
	}
	loop := reconcile.Loop{
		Waker: w.waker, Pass: w.pass, Resync: w.Resync, Now: w.Now, Logger: w.Logger,
		ErrorDelay: reconcile.ErrorDelay(30 * time.Second),
	}
	if err := loop.Run(ctx); err != nil {
		return err
	}
	return reconcile.Ended(parent, errors.New("cannot go on: the watch on the declared storage ended"))
}

// pass brings the storage as far towards the declaration as possible now.
func (w *Worker) pass(ctx context.Context) (time.Time, error) {
	began := w.Now()
	next, err := w.converge(ctx)
	if w.Metrics != nil {
		w.Metrics.Pass(w.Now().Sub(began), err)
	}
	return next, err
}

// converge observes, plans and acts until no step is due. It returns the time
// of the next retry.
func (w *Worker) converge(ctx context.Context) (time.Time, error) {
	done := map[string]error{}
	nudged := w.takeNudges()
	for {
		l, err := w.look(ctx)
		if err != nil {
			return time.Time{}, err
		}
		again := w.nudge(l, nudged)
		l.policy.Nudged = nudged
		l.steps = Plan(l.desired, l.observed, l.policy)
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
			return earliest(nextRetry(l), again), nil
		}
		if acted { // a nudge allows one attempt
			nudged = map[string]bool{}
		}
	}
}

// stage prepares the directory of mounts before the first mount, and gives it
// up once after the last declaration was removed.
func (w *Worker) stage(l *look) error {
	used := len(l.desired.Entities) > 0
	due := slices.ContainsFunc(l.steps, func(s Step) bool { return s.due(l.policy.Now) })
	if used && !due || !used && w.bare {
		return nil
	}
	w.bare = !used
	return w.Stage(used)
}

// earliest is the earlier of two times; zero means none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// nextRetry is the time of the earliest delayed step. A step that is due now
// was already tried in this pass and waits leastWait.
func nextRetry(l look) (next time.Time) {
	for _, s := range l.steps {
		switch {
		case s.due(l.policy.Now):
			next = earliest(next, l.policy.Now.Add(leastWait))
		case s.Waiting == "" && s.Held == "":
			next = earliest(next, s.After)
		}
	}
	return next
}

// assess writes the changed statuses in one call and reports whether it
// withdrew an offer. The storage of that offer can be taken away after the next
// look.
func (w *Worker) assess(ctx context.Context, l *look) (withdrew bool, err error) {
	var writes []state.Write
	statuses := assess(l.desired, l.observed, l.policy, l.steps)
	for i := range l.desired.Entities {
		e, s := &l.desired.Entities[i], statuses[i]
		if l.observed.Blind[e.Source] == nil {
			w.seen[e.Source] = true
		} else if !w.seen[e.Source] {
			s = unverified(s)
		}
		if !reflect.DeepEqual(e.Status, s) && string(spec.Encode(e.Status)) != string(spec.Encode(s)) {
			writes = append(writes, statusWrite(e, s))
		}
		for machine, a := range e.Status.Attachments {
			withdrew = withdrew || a.Source != "" && s.Attachments[machine].Source == ""
		}
		e.Status = s
	}
	return withdrew, w.write(ctx, writes)
}

// space sets a notice when a filesystem of the host fills up; it checks at most
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
