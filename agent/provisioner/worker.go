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

// Images makes an image usable for the worker's container type and returns
// the hypervisor's id of it.
type Images interface {
	EnsureImage(ctx context.Context, ref string, progress containerbroker.Progress) (string, error)
}

// Metrics counts what the worker does.
type Metrics interface {
	Pass(took time.Duration, err error)
	Operation(action string, took time.Duration, err error)
}

// Options are what a worker stands on.
type Options struct {
	Type   spec.ContainerType
	Store  state.Backend
	Broker containerbroker.Broker
	Differ containerbroker.Differ
	Images Images
	// Defaults are the configuration until the host object is read.
	Defaults Config
	Metrics  Metrics
	Now      func() time.Time
	NewToken func() string
	Logger   *slog.Logger
	// Resync is the longest time between two looks at everything; 0: 2 min.
	Resync time.Duration
}

// Worker provisions the machines of one container type.
type Worker struct {
	Options
	waker   *reconcile.Waker
	limiter *reconcile.Limiter
	waiting *reconcile.Limiter // waits for readiness hold no operation's place
	ops     sync.WaitGroup

	mu   sync.Mutex
	busy map[string]bool
	// queued counts the operations that have had no place yet; more says that
	// others were not begun for their number.
	queued int
	more   bool
	nudged map[string]bool
	ended  map[string]time.Time // when the last operation on a machine ended
	paused map[string]pause
	waits  map[string]patience // waits under way that a changed record ends
	config Config
	// blind says that the last listing failed, resynced when everything was
	// last read in detail.
	blind    bool
	resynced time.Time
	// begun is when the worker began, addressDelay how soon it looks again for
	// addresses that running machines have not got yet; 0: all have theirs.
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
		waits:   map[string]patience{},
		config:  o.Defaults,
	}
}

// waitersPerOperation bounds how many instances are waited for at once, as a
// multiple of the operations: waiting costs next to nothing here, but each
// waits through a request to the hypervisor.
const waitersPerOperation = 8

// Run works until ctx ends. It returns an error when its source of desired
// state is lost: its supervisor starts it again, and nothing is concluded from
// what cannot be read.
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

// pass looks at everything once and starts what is to be done.
func (w *Worker) pass(ctx context.Context) (time.Time, error) {
	began := w.Now()
	next, err := w.lookAndAct(ctx, began)
	if w.Metrics != nil {
		w.Metrics.Pass(w.Now().Sub(began), err)
	}
	return next, err
}

func (w *Worker) lookAndAct(ctx context.Context, now time.Time) (time.Time, error) {
	// Busy is read before the world: an operation that ends in between has
	// written its result, and its machine is looked at in the next pass.
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
	Rest(desired, observed.Instances, config.Owner(), config.Host.Boot)
	Booted(desired, observed.Instances, config, busy, now)
	steps := Plan(desired, observed, Policy{
		Namespace: config.Namespace, Lineage: config.Lineage, Harvest: config.Harvest, Now: now, LongestDelay: config.longestDelay(),
		Busy: busy, Nudged: nudged, Diff: w.Differ.Diff,
	})
	if err := w.writeStatuses(ctx, desired, observed, steps, busy, now, detail); err != nil {
		return time.Time{}, err
	}
	w.tellBooted(ctx, desired)
	next := w.act(ctx, desired, steps, nudged, now)
	if w.addressDelay = addressDelay(desired, w.begun, now, w.Resync); w.addressDelay > 0 {
		// No event tells of an address.
		soon := now.Add(w.addressDelay)
		next = earlier(next, &soon, now)
	}
	if goesOn(desired, observed, busy) {
		// The end of what another process began need not give an event.
		soon := now.Add(busyDelay)
		next = earlier(next, &soon, now)
	}
	return next, nil
}

// busyDelay is how soon an instance is looked at again on which the hypervisor
// carries out what this process has not begun.
const busyDelay = time.Second

func goesOn(desired []Desired, observed Observed, busy map[string]bool) bool {
	uids := map[string]bool{}
	for _, d := range desired {
		uids[d.UID] = !busy[d.Name]
	}
	return slices.ContainsFunc(observed.Instances, func(i containerbroker.Instance) bool {
		return i.Status == containerbroker.StatusBusy && i.Stamp != nil && uids[i.Stamp.UID]
	})
}

// snapshot returns the busy machines and takes the nudges.
func (w *Worker) snapshot() (busy, nudged map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	busy = maps.Clone(w.busy)
	nudged, w.nudged = w.nudged, map[string]bool{}
	for name := range busy {
		if nudged[nudgeWant] || nudged[nudgeWant+name] {
			w.nudged[nudgeWant+name] = true // should the operation fail
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
