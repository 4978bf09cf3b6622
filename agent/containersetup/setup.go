// Package containersetup prepares the host for a container type when the first
// machine of that type is declared, and then starts the type's provisioner.
// Types are independent: a failure of a type never delays another.
package containersetup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// Fallible is a Provisioner that can stop by itself, e.g. a systemd unit.
type Fallible interface {
	// Down returns the reason why the provisioner does not run and needs a
	// start; empty: it runs.
	Down(ctx context.Context) (why string, err error)
}

// Lock takes the host lock and returns its release function. While it waits, it
// reports the holder to waiting.
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
	Store       state.Backend
	Initialiser Initialiser
	Provisioner Provisioner
	Lock        Lock
	// Prepared runs once, after the type is ready and before its provisioner
	// starts. It rebuilds lost records from the instances found.
	Prepared func(ctx context.Context) error
	// Clear sets aside leftovers that obstruct new machines, e.g. of a power
	// cut, and reports whether it must run again; nil: nothing to clear. It runs
	// before Prepared; after a failed operation on a machine of the type, at
	// most once per ClearEvery (0: a minute); and RestEvery (0: 10 s) after it
	// returned true. A failure may cause several runs.
	Clear                 func(ctx context.Context) (more bool)
	ClearEvery, RestEvery time.Duration
	// LookEvery is the interval of checking a Fallible provisioner; 0: 30 s.
	LookEvery time.Duration
	Now       func() time.Time
	Logger    *slog.Logger
}

// Worker sets up a container type.
type Worker struct {
	Options
	waker *reconcile.Waker

	prepared bool
	started  atomic.Bool
	// ready means that this process has seen the type ready; the record of an
	// earlier process is not trusted.
	ready bool
	provisionerState
	clearing
}

// New returns a worker; Run starts it.
func New(o Options) *Worker {
	if o.LookEvery == 0 {
		o.LookEvery = 30 * time.Second
	}
	if o.ClearEvery == 0 {
		o.ClearEvery = time.Minute
	}
	if o.RestEvery == 0 {
		o.RestEvery = 10 * time.Second
	}
	return &Worker{Options: o, waker: reconcile.NewWaker()}
}

// errLostWatch ends a worker whose watch on the store ended.
var errLostWatch = errors.New("cannot go on: the watch on the declared machines ended")

// Run works until ctx ends.
func (w *Worker) Run(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	ids, err := w.Store.Watch(ctx, spec.KindMachine, spec.KindHost, spec.KindContainerType)
	if err != nil {
		if parent.Err() != nil {
			return nil //nolint:nilerr // stopped before it began
		}
		return fmt.Errorf("cannot watch the declared machines: %w", err)
	}
	go func() {
		defer cancel()
		for changed := range ids {
			if w.started.Load() && !slices.ContainsFunc(changed, func(id state.ID) bool { return id.Kind != spec.KindMachine }) {
				w.waker.SignalWithin(unhurried)
				continue
			}
			w.waker.Signal()
		}
	}()
	loop := reconcile.Loop{
		Waker: w.waker, Pass: w.pass, Now: w.Now, Logger: w.Logger,
		ErrorDelay: reconcile.ErrorDelay(5 * time.Minute),
	}
	if err := loop.Run(ctx); err != nil {
		return err
	}
	if parent.Err() == nil {
		return errLostWatch
	}
	return nil
}

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
		return time.Time{}, w.Provisioner.Stop(ctx)
	}
	if !w.ready {
		asked := seen.status.ObservedGeneration < seen.generation
		if next := seen.status.Attempts.NextRetry; next != nil && !asked && reconcile.Pending(*next, w.Now(), longestDelay) {
			return *next, nil
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
	if !again.IsZero() && (look.IsZero() || again.Before(look)) {
		look = again
	}
	return look, err
}

// makeReady initialises the type under the host lock. After a failure it
// returns the time of the next attempt.
func (w *Worker) makeReady(ctx context.Context, status spec.TypeStatus, generation int64) (time.Time, error) {
	if status.ObservedGeneration < generation {
		status.Attempts = spec.Attempts{}
	}
	// save creates a missing object with its first status, as generation 1. That
	// generation is not a request to retry.
	status.ObservedGeneration = max(generation, 1)
	err := w.initialise(ctx, &status)
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
	status.Attempts.Count++
	status.Attempts.ErrorKind = string(fault.KindOf(err))
	next := w.Now().Add(delays.Next(status.Attempts.Count, rand.Float64))
	status.Attempts.NextRetry = &next
	if err := w.save(ctx, status); err != nil {
		return time.Time{}, err
	}
	return next, nil
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
	results, err := w.Store.Write(ctx, state.Each, state.Write{ID: id, Revision: state.AnyRevision, Status: spec.Encode(s)})
	if err == nil {
		err = results[0].Err
	}
	if fault.Is(err, fault.NotFound) {
		_, err = w.Store.Write(ctx, state.Atomic, state.Write{ID: id, Spec: json.RawMessage("{}"), Status: spec.Encode(s), Life: state.Alive})
	}
	if err != nil {
		return fmt.Errorf("cannot write the status of type/%s: %w", w.Type, err)
	}
	return nil
}

func (w *Worker) event(ctx context.Context, level, reason, message string) {
	e := state.Event{Time: w.Now(), Object: state.ID{Kind: spec.KindContainerType, Name: string(w.Type)}, Level: level, Reason: reason, Message: message}
	if err := w.Store.Record(context.WithoutCancel(ctx), e); err != nil {
		w.Logger.Warn("An event cannot be recorded.", "type", w.Type, "error", err)
	}
}
