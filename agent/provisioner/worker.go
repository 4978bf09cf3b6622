package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// Images makes an image available to the worker's hypervisor and returns its id
// there.
type Images interface {
	EnsureImage(ctx context.Context, ref string, progress containerbroker.Progress) (string, error)
}

// Metrics counts the worker's passes and operations.
type Metrics interface {
	Pass(took time.Duration, err error)
	Operation(action string, took time.Duration, err error)
}

// Options are the dependencies and settings of a worker.
type Options struct {
	Type   spec.ContainerType
	Store  state.Backend
	Broker containerbroker.Broker
	Differ containerbroker.Differ
	Images Images
	// Defaults is the configuration until the host object is read.
	Defaults Config
	Metrics  Metrics
	Now      func() time.Time
	NewToken func() string
	Logger   *slog.Logger
	// Resync is the longest time between two passes that read everything in
	// detail; 0: 2 min.
	Resync time.Duration
}

// Worker provisions the machines of a container type.
type Worker struct {
	Options
	waker   *reconcile.Waker
	limiter *reconcile.Limiter
	waiting *reconcile.Limiter // bounds the waits for readiness, which hold no slot
	ops     sync.WaitGroup

	mu   sync.Mutex
	busy map[string]bool
	// queued counts the operations that wait for their first slot. more says that
	// further operations wait because the queue is full.
	queued int
	more   bool
	nudged map[string]bool
	ended  map[string]time.Time // when the last operation on a machine ended
	paused map[string]pause
	waits  map[string]declarationWait // running waits that end when the declaration changes
	config Config
	// blind says that the last listing failed. resynced is the time of the last
	// detailed pass.
	blind    bool
	resynced time.Time
	// begun is when the worker began. addressDelay is the time between looks for
	// missing addresses of running machines; 0: none is missing.
	begun        time.Time
	addressDelay time.Duration
}

// New returns a worker; Run starts it.
func New(o Options) *Worker {
	if o.Resync == 0 {
		o.Resync = 2 * time.Minute
	}
	return &Worker{
		Options: o,
		waker:   reconcile.NewWaker(),
		limiter: reconcile.NewLimiter(o.Defaults.Concurrency),
		waiting: reconcile.NewLimiter(waitersPerOperation * o.Defaults.Concurrency),
		busy:    map[string]bool{},
		nudged:  map[string]bool{},
		ended:   map[string]time.Time{},
		paused:  map[string]pause{},
		waits:   map[string]declarationWait{},
		config:  o.Defaults,
	}
}

// waitersPerOperation bounds the simultaneous waits for readiness, as a
// multiple of the concurrent operations. A wait costs little here but keeps a
// request to the hypervisor open.
const waitersPerOperation = 8

// Run works until ctx ends. It returns an error when the watch on the store is
// lost; the supervisor then starts it again.
func (w *Worker) Run(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	w.begun = w.Now()
	defer w.ops.Wait()
	defer cancel()
	ids, err := w.Store.Watch(ctx, w.kinds()...)
	if err != nil {
		return reconcile.Ended(parent, fmt.Errorf("cannot watch the declared machines: %w", err))
	}
	go func() {
		defer cancel()
		for changed := range ids {
			w.overtake(ctx, changed)
			if w.concerns(changed) {
				w.waker.Signal()
			}
		}
	}()
	if source, ok := w.Broker.(containerbroker.EventSource); ok {
		go w.followEvents(ctx, source)
	}
	loop := reconcile.Loop{
		Waker: w.waker, Pass: w.pass, Resync: w.Resync, Now: w.Now, Logger: w.Logger,
		ErrorDelay: reconcile.ErrorDelay(30 * time.Second),
	}
	if err := loop.Run(ctx); err != nil {
		return err
	}
	return reconcile.Ended(parent, errors.New("cannot go on: the watch on the declared machines ended"))
}

// pass reads the state of all machines once and starts the due steps.
func (w *Worker) pass(ctx context.Context) (time.Time, error) {
	began := w.Now()
	next, err := w.lookAndAct(ctx, began)
	if w.Metrics != nil {
		w.Metrics.Pass(w.Now().Sub(began), err)
	}
	return next, err
}

func (w *Worker) lookAndAct(ctx context.Context, now time.Time) (time.Time, error) {
	// Read busy before the observation. An operation that ends in between has
	// written its result, and the next pass looks at its machine.
	busy, nudged := w.snapshot()
	detail := now.Sub(w.resynced) >= w.Resync || w.addressDelay > 0 && now.Sub(w.resynced) >= w.addressDelay
	desired, observed, err := w.observe(ctx, detail)
	if err != nil {
		return time.Time{}, err
	}
	if detail {
		w.resynced = now
	}
	config := w.currentConfig()
	MarkNotAutostarted(desired, observed.Instances, config.Owner(), config.Host.Boot)
	markBooted(desired, observed.Instances, config, busy, now)
	steps := Plan(desired, observed, Policy{
		Namespace: config.Namespace, Lineage: config.Lineage, Harvest: config.Harvest, Now: now, LongestDelay: config.longestDelay(),
		Busy: busy, Nudged: nudged, Diff: w.Differ.Diff,
	})
	taking, err := w.writeStatuses(ctx, desired, observed, steps, busy, now, detail)
	if err != nil {
		return time.Time{}, err
	}
	if steps, err = w.confirm(ctx, steps, taking); err != nil {
		return time.Time{}, err
	}
	w.recordBooted(ctx, desired)
	next := w.act(ctx, desired, steps, nudged, now)
	if w.addressDelay = addressDelay(desired, w.begun, now, w.Resync); w.addressDelay > 0 {
		// A new address causes no event.
		soon := now.Add(w.addressDelay)
		next = earlier(next, &soon, now)
	}
	if goesOn(desired, observed, busy, now) {
		// The end of another process's operation may cause no event.
		soon := now.Add(busyDelay)
		next = earlier(next, &soon, now)
	}
	return next, nil
}

// busyDelay is the delay until the next look at an instance on which the
// hypervisor carries out an operation that this process did not begin.
const busyDelay = time.Second

func goesOn(desired []Desired, observed Observed, busy map[string]bool, now time.Time) bool {
	uids := map[string]bool{}
	for _, d := range desired {
		if uids[d.UID] = !busy[d.Name]; uids[d.UID] && len(d.Status.Uses) > 0 && !arrival(observed.Intents, d.UID, now).IsZero() {
			return true
		}
	}
	return slices.ContainsFunc(observed.Instances, func(i containerbroker.Instance) bool {
		return i.Status == containerbroker.StatusBusy && i.Stamp != nil && uids[i.Stamp.UID]
	})
}

// snapshot returns the busy machines and takes over the nudges.
func (w *Worker) snapshot() (busy, nudged map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	busy = maps.Clone(w.busy)
	nudged, w.nudged = w.nudged, map[string]bool{}
	for name := range busy {
		if nudged[nudgeWant] || nudged[nudgeWant+name] {
			w.nudged[nudgeWant+name] = true // kept in case the running operation fails
		}
	}
	return busy, nudged
}

func (w *Worker) currentConfig() Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.config
}

func (w *Worker) setConfig(c Config) {
	w.mu.Lock()
	w.config = c
	w.mu.Unlock()
	w.limiter.SetLimit(c.Concurrency)
	w.waiting.SetLimit(waitersPerOperation * c.Concurrency)
}
