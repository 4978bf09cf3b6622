// Package containersetup prepares the host for a container type when the first
// machine of that type is declared, and then starts the type's provisioner.
// Types are independent: a failure of a type never delays another.
package containersetup

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// Initialiser prepares the host for a container type.
type Initialiser interface {
	Satisfied(ctx context.Context) (bool, string)
	Supported(ctx context.Context) (bool, string)
	Initialise(ctx context.Context, progress func(string)) error
}

// Provisioner is the worker for the type's machines. Both methods are
// idempotent.
type Provisioner interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// fallible is a Provisioner that can stop by itself, e.g. a systemd unit.
type fallible interface {
	// Down returns the reason why the provisioner does not run and needs a start,
	// or "" if it runs.
	Down(ctx context.Context) (why string, err error)
}

// Lock takes the host lock and returns its release function. While it waits, it
// calls waiting() with the holder of the lock.
type Lock func(ctx context.Context, purpose string, waiting func(holder string)) (release func(), err error)

// The states of a container type.
const (
	StateWaiting      = "waiting"
	StateInitialising = "initialising"
	StateReady        = "ready"
	StateError        = "error"
)

// Options configure the setup of a container type.
type Options struct {
	Type        spec.ContainerType
	Initialiser Initialiser
	Provisioner Provisioner
	Lock        Lock
	// Folder returns the folder of the hypervisor's instances, or "" while there is
	// no hypervisor. before is the folder when the type was last ready, or "". Folder
	// fails with fault.NeedsOperator if machines have their instances in before and
	// not in the present folder, since the provisioner would make them a second time.
	// It is called before and after the initialisation. Nil means that the folder
	// never changes.
	Folder func(ctx context.Context, before string) (string, error)
	// Prepared runs once, after the type is ready and before its provisioner
	// starts. It restores lost records from the instances.
	Prepared func(ctx context.Context) error
	// Clear moves files away that obstruct new machines, e.g. after a power cut.
	// It returns the new places, and whether files remain for a later call. Nil
	// means that there is nothing to clear. It runs before Prepared(), after a
	// failed operation on a machine of the type, and RestEvery (0 means 10 s) after
	// a removal, at most once per ClearEvery (0 means a minute). If files remain or
	// it fails, it runs again after RestEvery. It also runs once after the last
	// removal.
	Clear                 func(ctx context.Context) (places []string, more bool, err error)
	ClearEvery, RestEvery time.Duration
	// LookEvery is the interval of checking whether the provisioner runs, if it is
	// fallible. 0 means 30 s.
	LookEvery time.Duration
}

// Worker sets up a container type.
type Worker struct {
	*reconcile.Frame
	Options

	machines reconcile.Cache[machine]
	touched  touched
	prepared bool
	started  atomic.Bool
	// ready means that this process has seen the type ready; the record of an
	// earlier process does not count.
	ready bool
	provisionerState
	clearing
}

// New returns a worker; Run starts it.
func New(c reconcile.Common, o Options) *Worker {
	o.LookEvery = cmp.Or(o.LookEvery, 30*time.Second)
	o.ClearEvery = cmp.Or(o.ClearEvery, time.Minute)
	o.RestEvery = cmp.Or(o.RestEvery, 10*time.Second)
	return &Worker{Frame: reconcile.NewFrame(c), Options: o, machines: reconcile.Cache[machine]{}}
}

// Run works until ctx ends. It returns an error when the watch on the store is
// lost.
func (w *Worker) Run(ctx context.Context) error {
	return w.Frame.Run(ctx, reconcile.Work{
		Objects: "machines", Kinds: kinds(), Changed: w.changed, Pass: w.pass, LongestDelay: 5 * time.Minute,
	})
}

func (w *Worker) changed(_ context.Context, ids []state.ID) {
	for _, id := range ids {
		if id.Kind == spec.KindMachine {
			w.touched.add(id.Name)
		}
	}
	switch machines := !slices.ContainsFunc(ids, func(id state.ID) bool { return id.Kind != spec.KindMachine }); {
	case machines && w.started.Load():
		w.SignalWithin(unhurried)
	case machines:
		w.SignalSpaced(spacing)
	default:
		w.Signal()
	}
}

// spacing is the shortest time between two passes that changed machines cause
// while the provisioner does not run. Without it, frequent changes to machines
// of other types would cause a pass each.
const spacing = 250 * time.Millisecond

// unhurried is the delay before handling machine changes while the provisioner
// runs. Only the removal of the last machine matters then, and most changes are
// the provisioner's own.
const unhurried = time.Second

// delays are the delays between attempts; longestDelay is the longest delay
// including jitter.
var delays = reconcile.Backoff{Base: 10 * time.Second, Max: 5 * time.Minute, Jitter: 0.1}

const longestDelay = 6 * time.Minute

// pass checks whether the type is needed, and makes it ready.
func (w *Worker) pass(ctx context.Context) (time.Time, error) {
	seen, err := w.read(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if !seen.needed {
		if !w.started.Load() {
			return time.Time{}, nil
		}
		w.started.Store(false)
		w.clear(ctx, seen)
		return time.Time{}, w.Provisioner.Stop(ctx)
	}
	if !w.ready {
		asked := seen.status.ObservedGeneration < seen.generation
		if _, after := reconcile.Gate(seen.status.Attempts, w.Now(), longestDelay); !after.IsZero() && !asked {
			return after, nil
		}
		if next, err := w.makeReady(ctx, seen.status, seen.generation); err != nil || !next.IsZero() {
			return next, err
		}
	}
	again := w.clear(ctx, seen)
	if !w.prepared && w.Prepared != nil {
		if err := w.Prepared(ctx); err != nil {
			return time.Time{}, err
		}
	}
	w.prepared = true
	look, err := w.ensureProvisioner(ctx, seen.generation)
	return reconcile.Earliest(again, look), err
}

// makeReady initialises the type under the host lock. After a failure it
// returns the time of the next attempt.
func (w *Worker) makeReady(ctx context.Context, status spec.TypeStatus, generation int64) (time.Time, error) {
	if status.ObservedGeneration < generation {
		status.Attempts = spec.Attempts{}
	}
	// save() creates a missing object with its first status, as generation 1. That
	// generation is not a request to retry.
	status.ObservedGeneration = max(generation, 1)
	err := w.checkFolder(ctx, &status)
	if err == nil {
		err = w.initialise(ctx, &status)
	}
	if err == nil {
		err = w.checkFolder(ctx, &status) // of a hypervisor that was installed just now
	}
	if ctx.Err() != nil {
		return time.Time{}, nil //nolint:nilerr // the agent stops; the next one goes on
	}
	if err == nil {
		w.ready = true
		supported := true
		status.State, status.Message, status.Supported, status.Attempts = StateReady, "", &supported, spec.Attempts{}
		return time.Time{}, w.save(ctx, status)
	}
	w.event(ctx, state.LevelError, "InitialiseFailed", err.Error())
	w.updateMachines(ctx, err.Error())
	status.State, status.Message = StateError, err.Error()
	reconcile.Failed(&status.Attempts, fault.KindOf(err), w.Now(), func(n int) time.Duration { return delays.Next(n, rand.Float64) })
	return *status.Attempts.NextRetry, w.save(ctx, status)
}

// checkFolder records the folder of the instances. If they are in another, it
// stops the provisioner, which an earlier agent may have left.
func (w *Worker) checkFolder(ctx context.Context, status *spec.TypeStatus) error {
	if w.Folder == nil {
		return nil
	}
	folder, err := w.Folder(ctx, status.Folder)
	if err != nil {
		if unstopped := w.Provisioner.Stop(ctx); unstopped != nil {
			w.Logger.Warn("The provisioner cannot be stopped.", "type", w.Type, "error", unstopped)
		}
		return err
	}
	status.Folder = cmp.Or(folder, status.Folder)
	return nil
}

func (w *Worker) initialise(ctx context.Context, status *spec.TypeStatus) error {
	ok, why := w.Initialiser.Satisfied(ctx)
	if ok {
		return nil
	}
	if supported, reason := w.Initialiser.Supported(ctx); !supported {
		status.Supported = &supported
		return fault.New(fault.NeedsOperator, "this host cannot run %s machines: %s", w.Type, reason)
	}
	filter := progressFilter{now: w.Now}
	show := func(state, message string) {
		status.State, status.Message = state, message
		if filter.due(message) {
			w.updateMachines(ctx, message)
		}
		if err := w.save(ctx, *status); err != nil && ctx.Err() == nil {
			w.Logger.Warn("Progress cannot be written.", "type", w.Type, "error", err)
		}
	}
	w.updateMachines(ctx, why)
	purpose := fmt.Sprintf("%s container initialisation", w.Type)
	release, err := w.Lock(ctx, purpose, func(holder string) {
		show(StateWaiting, "waiting for the host lock, held by "+holder)
	})
	if err != nil {
		return fmt.Errorf("cannot take the host lock for the %s: %w", purpose, err)
	}
	defer release()
	w.event(ctx, state.LevelInfo, "Initialising", why)
	show(StateInitialising, why)
	if err := w.Initialiser.Initialise(ctx, func(message string) { show(StateInitialising, message) }); err != nil {
		return err
	}
	w.event(ctx, state.LevelInfo, "Initialised", "")
	return nil
}

// save writes the type's status, and creates the object if it is missing.
func (w *Worker) save(ctx context.Context, s spec.TypeStatus) error {
	id := state.ID{Kind: spec.KindContainerType, Name: string(w.Type)}
	err := w.Put(ctx, reconcile.StatusWrite(id, "", s))
	if fault.Is(err, fault.NotFound) {
		_, err = w.Store.Write(ctx, state.Atomic, state.Write{ID: id, Spec: json.RawMessage("{}"), Status: spec.Encode(s), Life: state.Alive})
	}
	return fault.Explain(err, "cannot write the status of type/%s", w.Type)
}

func (w *Worker) event(ctx context.Context, level, reason, message string) {
	w.Record(ctx, state.Event{Object: state.ID{Kind: spec.KindContainerType, Name: string(w.Type)}, Level: level, Reason: reason, Message: message})
}
