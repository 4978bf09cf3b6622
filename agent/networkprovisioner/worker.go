package networkprovisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/firewall"
	"hostler/sysctl"
)

// Metrics counts the worker's passes and operations.
type Metrics interface {
	Pass(took time.Duration, err error)
	Operation(action string, took time.Duration, err error)
}

// Links changes the host's links and reports their changes; see package
// hostnet.
type Links interface {
	Observe(ctx context.Context) (hostnet.Observed, error)
	Apply(ctx context.Context, s hostnet.Step) error
	Watch(ctx context.Context, topic hostnet.Topic) (<-chan hostnet.Wake, error)
}

// Firewall manages our nftables table; see package firewall.
type Firewall interface {
	Apply(ctx context.Context, r firewall.Rules) (changed bool, err error)
}

// Parameters sets kernel parameters; see package sysctl.
type Parameters interface {
	Apply(ctx context.Context, owner string, settings []sysctl.Setting) ([]string, error)
	// Holds reports whether Apply would change nothing.
	Holds(owner string, settings []sysctl.Setting) bool
	Satisfied(settings []sysctl.Setting) (bool, string)
	ReleaseInUse(ctx context.Context, owner, name string, users []string) (since []string, err error)
	Owned(owner string) ([]string, error)
	Read(name string) (string, error)
}

// Tools are the programs that networks need.
type Tools interface {
	// Have reports whether they are installed; dhcp includes the programs for
	// DHCP.
	Have(dhcp bool) bool
	// Install installs missing programs; it does nothing if none is missing.
	Install(ctx context.Context, progress func(string)) error
}

// Options configure a Worker.
type Options struct {
	Store      state.Backend
	Eyes       Eyes
	Links      Links
	Firewall   Firewall
	Parameters Parameters
	Guard      Guard
	Tools      Tools
	// Ends signals that a change awaiting confirmation has ended; nil: never.
	Ends <-chan struct{}
	// Defaults are the policy until the host object is read.
	Defaults Policy
	// Notice sets a sentence in the host's status; an empty text clears it.
	Notice  func(key, text string)
	Metrics Metrics
	Now     func() time.Time
	Logger  *slog.Logger
	// Resync is the longest time between two full passes; 0: 2 min.
	Resync time.Duration
	// PollInterval is the interval of polling kernel parameters and DHCP
	// servers, which send no events; 0: 2 s.
	PollInterval time.Duration
}

// Worker reconciles the networks of a host.
type Worker struct {
	Options
	waker  *reconcile.Waker
	policy Policy
	// last is the state that earlier passes left, by its key; nil before the
	// first pass. It tells the worker's own changes of the host from drift.
	last map[string]kept
	// idle: there are no networks, and nothing of ours is left on the host.
	idle bool
	// failed holds the networks whose steps failed, by uid.
	failed map[string]failure
	// notices are the notices shown now, shown those of the current pass.
	notices, shown map[string]string
	// trouble is the last failure that affects all networks.
	trouble failure

	mu        sync.Mutex
	wrote     map[string]int64 // the revision last written, by network
	unchanged func() bool      // reports whether parameters and servers are as the last pass left them; nil: there are none
	polls     chan struct{}    // signals that unchanged was set
}

// New returns a worker; Run starts it.
func New(o Options) *Worker {
	if o.Resync == 0 {
		o.Resync = 2 * time.Minute
	}
	if o.PollInterval == 0 {
		o.PollInterval = 2 * time.Second
	}
	return &Worker{Options: o, waker: reconcile.NewWaker(), policy: o.Defaults, failed: map[string]failure{}, notices: map[string]string{}, shown: map[string]string{}, wrote: map[string]int64{}, polls: make(chan struct{}, 1)}
}

// Prepare sets ready networks that are not on the host, e.g. after a reboot, to
// pending, so that no machine starts on them. It runs before any worker that
// starts machines, and changes nothing on the host.
func (w *Worker) Prepare(ctx context.Context) error {
	objects, _, err := w.Store.List(ctx, spec.KindNetwork)
	if err != nil {
		return fmt.Errorf("cannot read the declared networks: %w", err)
	}
	d, err := Decode(objects)
	if err != nil || len(d.Networks) == 0 {
		return err
	}
	// If the host cannot be observed, treat all networks as missing.
	o, blind := w.Links.Observe(ctx)
	var writes []state.Write
	for _, n := range d.Networks {
		if n.Status.State == stateReady && !made(n, Observed{Host: o}) {
			n.Status.State = statePending
			writes = append(writes, statusWrite(n, n.Status))
		}
	}
	return errors.Join(blind, w.write(ctx, writes))
}

// Run works until ctx ends. It returns an error if the watch on the store ends;
// the supervisor then restarts it.
func (w *Worker) Run(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	ids, err := w.Store.Watch(ctx, kinds()...)
	if err != nil {
		return reconcile.Ended(parent, fmt.Errorf("cannot watch the declared networks: %w", err))
	}
	followers.Go(func() {
		defer cancel()
		for changed := range ids {
			if w.concerns(ctx, changed) {
				w.waker.SignalWithin(gather)
			}
		}
	})
	followers.Go(func() { w.follow(ctx, hostnet.Network) })
	followers.Go(func() { w.follow(ctx, hostnet.Firewall) })
	followers.Go(func() { w.pollDrift(ctx) })
	followers.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.Ends:
				w.waker.Signal()
			}
		}
	})
	loop := reconcile.Loop{
		Waker: w.waker, Pass: w.pass, Resync: w.Resync, Now: w.Now, Logger: w.Logger,
		ErrorDelay: reconcile.ErrorDelay(30 * time.Second),
	}
	if err := loop.Run(ctx); err != nil {
		return err
	}
	return reconcile.Ended(parent, errors.New("cannot go on: the watch on the declared networks ended"))
}

// concerns reports whether a change of these objects requires a pass. The
// worker's own writes do not.
func (w *Worker) concerns(ctx context.Context, changed []state.ID) bool {
	for _, id := range changed {
		if id.Kind != spec.KindNetwork {
			return true
		}
		o, err := w.Store.Get(ctx, id)
		w.mu.Lock()
		own := err == nil && w.wrote[id.Name] == o.Revision
		w.mu.Unlock()
		if !own {
			return true
		}
	}
	return len(changed) == 0
}

// gather is the time to collect changes before a pass, since they come in
// bursts.
const gather = 100 * time.Millisecond

// follow turns the kernel's events into wake-ups. It renews a broken watch and
// then wakes the worker for a full pass.
func (w *Worker) follow(ctx context.Context, topic hostnet.Topic) {
	delay := time.Second
	for ctx.Err() == nil {
		wakes, err := w.Links.Watch(ctx, topic)
		if err != nil {
			w.Logger.Debug("The host's network cannot be watched; the agent polls it.", "error", err)
			delay = min(2*delay, time.Minute)
		} else {
			delay = time.Second
			w.waker.Signal()
			for range wakes {
				w.waker.SignalWithin(gather)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// pollDrift polls for changes that send no events, i.e. of sysctls and DHCP
// servers, and wakes the worker. It only reads a few files.
func (w *Worker) pollDrift(ctx context.Context) {
	tick := time.NewTicker(w.PollInterval)
	defer tick.Stop()
	for {
		w.mu.Lock()
		well := w.unchanged
		w.mu.Unlock()
		due := tick.C
		if well == nil {
			tick.Stop()
			due = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-w.polls:
			tick.Reset(w.PollInterval)
		case <-due:
			if !well() {
				w.waker.Signal()
			}
		}
	}
}

// pass runs converge and counts it.
func (w *Worker) pass(ctx context.Context) (time.Time, error) {
	began := w.Now()
	next, err := w.converge(ctx)
	if w.Metrics != nil {
		w.Metrics.Pass(w.Now().Sub(began), err)
	}
	return next, err
}
