package networkprovisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/firewall"
	"hostler/sysctl"
)

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
	// Have reports whether the programs are installed. If dhcp is true, it also
	// checks the programs for DHCP.
	Have(dhcp bool) bool
	// Install installs missing programs. It does nothing if none is missing.
	Install(ctx context.Context, progress func(string)) error
}

// Options configure a Worker.
type Options struct {
	Eyes       Eyes
	Links      Links
	Firewall   Firewall
	Parameters Parameters
	Guard      Guard
	Tools      Tools
	// Ends signals that a change that awaited confirmation has ended. If nil,
	// there are no such changes.
	Ends <-chan struct{}
	// Defaults are the policy until the worker has read the host's record.
	Defaults Policy
	// PollInterval is the interval of polling kernel parameters and DHCP
	// servers, which send no events. 0 means 2 s.
	PollInterval time.Duration
}

// Worker reconciles the networks of a host.
type Worker struct {
	*reconcile.Frame
	Options
	policy  Policy
	decoder decoder
	// last holds the parts of the host's state that earlier passes left, by
	// key. It is nil before the first pass. With it the worker distinguishes
	// drift from its own changes.
	last map[string]kept
	// idle is true if there are no networks and nothing of ours is left on the
	// host.
	idle bool
	// resumes counts the passes after which a DHCP client stayed paused.
	resumes int
	pairs   pairs // pairs without a guest
	// failed holds the failures, by the network's uid or allNetworks.
	failed reconcile.Failures
	// notices holds the notices of the last pass. shown collects the notices of
	// the current pass.
	notices, shown map[string]string

	mu        sync.Mutex
	unchanged func() bool   // reports whether parameters and servers are as the last pass left them, or nil if there are none
	polls     chan struct{} // signals that unchanged was set
}

// New returns a worker. Run starts it.
func New(c reconcile.Common, o Options) *Worker {
	c.Resync = cmp.Or(c.Resync, reconcile.DefaultResync)
	o.PollInterval = cmp.Or(o.PollInterval, 2*time.Second)
	return &Worker{Frame: reconcile.NewFrame(c), Options: o, policy: o.Defaults, decoder: newDecoder(), failed: reconcile.Failures{}, pairs: pairs{}, notices: map[string]string{}, shown: map[string]string{}, polls: make(chan struct{}, 1)}
}

// Prepare marks ready networks that the host does not have, e.g. after a
// reboot, as pending, so that no machine starts on them. Call it before any
// worker that starts machines. It changes nothing on the host.
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
	var writes reconcile.Batch
	for _, n := range d.Networks {
		if n.Status.State == stateReady && !made(n, Observed{Host: o}) {
			before := n.Status
			n.Status.State = statePending
			writes.Status(n.id(), n.UID, before, n.Status)
		}
	}
	return errors.Join(blind, w.Write(ctx, writes))
}

// Run runs passes until ctx ends. It returns an error if the watch on the store
// ends. The supervisor then starts Run again.
func (w *Worker) Run(ctx context.Context) error {
	return w.Frame.Run(ctx, reconcile.Work{
		Objects: "networks", Kinds: kinds(), Pass: w.converge,
		Changed: func(ctx context.Context, changed []state.ID) {
			if w.concerns(ctx, changed) {
				w.SignalWithin(gather)
			}
		},
		Begin: func(ctx context.Context) {
			w.Tasks.Go(func() { w.follow(ctx, hostnet.Network) })
			w.Tasks.Go(func() { w.follow(ctx, hostnet.Firewall) })
			w.Tasks.Go(func() { w.pollDrift(ctx) })
			w.Tasks.Go(func() { reconcile.Receive(ctx, w.Ends, func(struct{}) { w.Signal() }) })
		},
	})
}

// concerns reports whether a change of these objects requires a pass. The
// worker's own writes require none.
func (w *Worker) concerns(ctx context.Context, changed []state.ID) bool {
	return len(changed) == 0 || slices.ContainsFunc(changed, func(id state.ID) bool { return id.Kind != spec.KindNetwork || !w.Own(ctx, id) })
}

// gather is the delay of a pass after a change. Changes come in bursts, and
// those within this time share one pass.
const gather = 100 * time.Millisecond

// follow wakes the worker for the kernel's events.
func (w *Worker) follow(ctx context.Context, topic hostnet.Topic) {
	open := func(ctx context.Context) (<-chan hostnet.Wake, error) { return w.Links.Watch(ctx, topic) }
	reconcile.Follow(ctx, w.Frame, open, func(hostnet.Wake) { w.SignalWithin(gather) })
}

// pollDrift polls for changes that send no events, i.e. changes of kernel
// parameters and DHCP servers, and wakes the worker. It only reads a few files.
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
				w.Signal()
			}
		}
	}
}
