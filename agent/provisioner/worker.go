package provisioner

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// Images makes an image available to the worker's hypervisor and returns the
// image's id in the hypervisor.
type Images interface {
	EnsureImage(ctx context.Context, ref string, progress containerbroker.Progress) (string, error)
}

// Options are the dependencies and settings of a worker. Common.Resync is the
// longest time between two passes that list the instances in detail.
type Options struct {
	Type   spec.ContainerType
	Broker containerbroker.Broker
	Differ containerbroker.Differ
	Images Images
	// Defaults is the configuration until the worker has read the host's
	// record.
	Defaults Config
	NewToken func() string
}

// Worker provisions the machines of a container type.
type Worker struct {
	*reconcile.Frame
	Options
	decoder decoder // only the pass uses it
	limiter *reconcile.Limiter
	nudges  reconcile.Nudges
	waiting *reconcile.Limiter // bounds the waits for readiness, which need no slot

	mu   sync.Mutex
	busy map[string]bool
	// queued counts the creates that wait for their first slot. more is true if
	// further creates could not begin because the queue was full.
	queued int
	more   bool
	ended  map[string]time.Time // when the last operation on a machine ended
	wrote  map[string]time.Time // when a pass last wrote a machine's status
	paused reconcile.Failures
	waits  map[string]declarationWait // the running waits, by machine
	config Config
	// blind is true if the last listing of instances failed. resynced is the
	// time of the last detailed pass.
	blind    bool
	resynced time.Time
	// begun is the time at which the worker began. addressDelay is the delay
	// before the next read of missing addresses, or 0 if no running machine
	// lacks an address.
	begun        time.Time
	addressDelay time.Duration
	looked       bool // a pass has succeeded
	listings     listingTimes
}

// New returns a worker. Run starts it.
func New(c reconcile.Common, o Options) *Worker {
	c.Relaxed = true
	c.Resync = cmp.Or(c.Resync, reconcile.DefaultResync)
	return &Worker{
		Frame:   reconcile.NewFrame(c),
		Options: o,
		decoder: newDecoder(),
		limiter: reconcile.NewLimiter(o.Defaults.Concurrency),
		waiting: reconcile.NewLimiter(waitersPerOperation * o.Defaults.Concurrency),
		busy:    map[string]bool{},
		ended:   map[string]time.Time{},
		wrote:   map[string]time.Time{},
		paused:  reconcile.Failures{},
		waits:   map[string]declarationWait{},
		config:  o.Defaults,
	}
}

// waitersPerOperation times the limit of concurrent operations is the limit of
// concurrent waits for readiness. A wait costs the agent little but keeps a
// request to the hypervisor open.
const waitersPerOperation = 8

// Run runs passes until ctx ends and then ends its operations. It returns an
// error if the watch on the store is lost.
func (w *Worker) Run(ctx context.Context) error {
	w.begun = w.Now()
	return w.Frame.Run(ctx, reconcile.Work{
		Objects: "machines", Kinds: w.kinds(), Changed: w.changed, Pass: w.pass,
		Begin: func(ctx context.Context) {
			if source, ok := w.Broker.(containerbroker.EventSource); ok {
				w.Tasks.Go(func() { w.followEvents(ctx, source) })
			}
		},
	})
}

// changed ends the waits of changed machines and wakes the worker. It does not
// wake the worker for busy machines, because their own operations write them.
func (w *Worker) changed(ctx context.Context, ids []state.ID) {
	w.overtake(ctx, ids)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.Now()
	own := func(id state.ID) bool { // the last write of an operation arrives after its end
		return id.Kind == spec.KindMachine && (now.Sub(w.ended[id.Name]) <= gather || now.Sub(w.wrote[id.Name]) <= gather)
	}
	ids = slices.DeleteFunc(ids, func(id state.ID) bool { return id.Kind == spec.KindMachine && w.busy[id.Name] })
	switch {
	case len(ids) == 0:
	case len(w.busy) > 0 && !slices.ContainsFunc(ids, func(id state.ID) bool { return !own(id) }):
		w.SignalWithin(w.listings.settled())
	default:
		w.Signal()
	}
}

// pass reads the state of all machines once and starts the due steps. It
// returns the time of the next pass, or zero if only an event causes one.
func (w *Worker) pass(ctx context.Context) (time.Time, error) {
	now := w.Now()
	// Read busy before the observation. If an operation ends in between, it has
	// written its result, and the next pass plans for its machine.
	busy, nudged := w.snapshot()
	detail := w.needsDetail(now, len(busy) > 0)
	desired, observed, err := w.observe(ctx, detail, busy)
	if err != nil {
		return time.Time{}, err
	}
	if detail {
		w.resynced = now
	}
	config := w.currentConfig()
	MarkNotAutostarted(desired, observed.Instances, config.Owner(), config.Host.Boot)
	markBooted(desired, observed.Instances, config, busy, now)
	w.overtakeReplugged(desired)
	endRefusals(desired, observed.Instances, config.Owner(), w.Differ.Diff)
	steps := Plan(desired, observed, Policy{
		Type: w.Type, Namespace: config.Namespace, Lineage: config.Lineage, Withheld: config.Withheld, Harvest: config.Harvest, Now: now, LongestDelay: config.longestDelay(),
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
	if !w.looked {
		w.looked = true
		next = now // the pass in detail
	}
	if w.addressDelay = addressDelay(desired, w.begun, now, w.Resync); w.addressDelay > 0 {
		w.addressDelay = w.listings.address(w.addressDelay, w.Resync)
		next = reconcile.Earliest(next, now.Add(w.addressDelay)) // a new address causes no event
	}
	if goesOn(desired, observed, busy, now) {
		next = reconcile.Earliest(next, now.Add(busyDelay)) // the end of another process's operation may cause no event
	}
	return next, nil
}

// needsDetail reports whether a pass needs a detailed listing, which makes the
// hypervisor enter every instance. This takes LXD two seconds for a hundred on a
// busy host, so the first pass does without, and starts what is to run. While
// operations run, a detailed listing would delay them.
func (w *Worker) needsDetail(now time.Time, busy bool) bool {
	switch since := now.Sub(w.resynced); {
	case w.resynced.IsZero() && now.Sub(w.begun) < w.Resync:
		// An operation that the first pass began may not have reached the limiter.
		return w.looked && !busy && w.limiter.Idle()
	case since >= w.Resync:
		return true
	default:
		return w.addressDelay > 0 && since >= w.addressDelay && w.limiter.Idle()
	}
}

// busyDelay is the delay until the next pass if the hypervisor carries out an
// operation on an instance that this process did not begin.
const busyDelay = time.Second

func goesOn(desired []Desired, observed Observed, busy map[string]bool, now time.Time) bool {
	uids := map[string]bool{}
	for _, d := range desired {
		if uids[d.UID] = !busy[d.Name]; uids[d.UID] && len(d.Status.Uses)+len(d.Status.UsesNICs) > 0 && !arrival(observed.Intents, d.UID, now).IsZero() {
			return true
		}
	}
	return slices.ContainsFunc(observed.Instances, func(i containerbroker.Instance) bool {
		return i.Status == containerbroker.StatusBusy && i.Stamp != nil && uids[i.Stamp.UID]
	})
}

// snapshot returns a copy of the busy machines, and the nudges since the last
// call.
func (w *Worker) snapshot() (busy, nudged map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	busy = maps.Clone(w.busy)
	nudged = w.nudges.Take()
	for name := range busy {
		if nudged[nudgeWant] || nudged[nudgeWant+name] {
			w.nudges.Add(nudgeWant + name) // kept in case the running operation fails
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
