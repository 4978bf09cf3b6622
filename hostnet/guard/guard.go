// Package guard keeps a change of the host's own network from locking people
// out. What was there is written to the disk before the first step, and a
// process of its own, the watchdog, puts it back at a deadline whatever becomes
// of the agent. Only after a good probe, and a person's word where one was
// asked for, is the change kept: the checkpoint is removed, and with it the
// watchdog ends.
package guard

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"hostler/hostnet"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

const (
	// DefaultLimit is how long a change and its probes may take before it is
	// undone; with the undoing it stays below 10 s.
	DefaultLimit = 8 * time.Second
	// probeLimit is how long the host may take to be reachable after a change.
	// The kernel asks a silent neighbour three times, a second apart.
	probeLimit = 4 * time.Second
	// baseLimit is how long a probe may take before the change: what does not
	// answer then is not asked for afterwards.
	baseLimit = 1500 * time.Millisecond
	// watchdogLimit is how long the watchdog may take to start.
	watchdogLimit = 5 * time.Second
	// look is how often the checkpoint and the watchdog's life are looked at
	// while a change is armed. A timer would not tell of another deadline.
	look = 100 * time.Millisecond
	// maxTries is how often a change is tried that the agent did not live to
	// probe.
	maxTries = 3
)

// Sysctls reads and writes kernel parameters, named like
// net/ipv6/conf/eth0/accept_ra.
type Sysctls interface {
	Read(name string) (string, error)
	Set(name, value string) error
}

// Options say what a Guard works with.
type Options struct {
	// Dir is the guard's own folder, made when absent (0700).
	Dir       string
	Namespace string
	Host      *hostnet.Host
	// Start starts the watchdog: a process that outlives this one and calls
	// Watch with the same folder.
	Start   func(ctx context.Context) error
	Sysctls Sysctls // nil: none are kept
	// Probes are addresses that must stay reachable, if they are.
	Probes func() []netip.Addr
	// Limit is how long a change may take; 0 means DefaultLimit.
	Limit time.Duration
	// Changed is called when a change that waited to be confirmed has come to
	// its end, in whatever way; nil is nobody.
	Changed func()
	Log     *slog.Logger
}

// Guard guards the changes of one host. Its methods may be called by several
// goroutines; one change is armed at a time.
type Guard struct {
	o    Options
	busy sync.Mutex // held while a change is being made
	mu   sync.Mutex
	// clients are where the people came from who changed something of late.
	clients map[netip.Addr]time.Time
}

// New returns the Guard of a folder.
func New(o Options) *Guard {
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Probes == nil {
		o.Probes = func() []netip.Addr { return nil }
	}
	return &Guard{o: o, clients: map[netip.Addr]time.Time{}}
}

// Change is a change of the host's own network.
type Change struct {
	// Object is what it is made for, such as network/lan, and Key what is
	// wanted of it: a change that was undone is not made again under the same.
	Object, Key string
	Steps       []hostnet.Step
	// Confirm is how long the change then waits for Guard.Confirm; 0: a good
	// probe is enough.
	Confirm time.Duration
}

// Run makes a change. It returns nil when the change is kept, and
// fault.NotReady when it waits for Confirm. Otherwise the host is as it was,
// and the error says why: fault.NeedsOperator where trying again is of no use.
func (g *Guard) Run(ctx context.Context, c Change) error {
	if !g.busy.TryLock() {
		return fault.New(fault.NotReady, "cannot change %s: another change of the host's network is being made", c.Object)
	}
	defer g.busy.Unlock()
	if armed, err := g.read(); err != nil {
		return err
	} else if armed != nil {
		return armed.waiting(c.Object)
	}
	if reason := g.Refused(c.Object, c.Key); reason != "" {
		return fault.New(fault.NeedsOperator, "%s", reason)
	}
	cp, err := g.checkpoint(ctx, c)
	if err != nil {
		return fmt.Errorf("cannot change %s: %w", c.Object, err)
	}
	if err := g.arm(ctx, cp); err != nil {
		return fmt.Errorf("cannot change %s: %w", c.Object, err)
	}
	g.o.Log.Info("A change of the host's network is armed.", "object", c.Object, "steps", len(c.Steps), "limit", g.o.Limit)
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go g.keepWatchdog(work, cp, stop)
	if err := g.make(work, cp, c); err != nil {
		return g.undo(ctx, cp, err)
	}
	if c.Confirm > 0 {
		return g.askToConfirm(ctx, cp, c.Confirm)
	}
	return g.commit(ctx, cp)
}

// make carries out the steps and probes. An error means that all of it is to be
// undone.
func (g *Guard) make(ctx context.Context, cp *Checkpoint, c Change) error {
	for _, s := range c.Steps {
		if err := g.still(cp); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := g.o.Host.Apply(ctx, s); err != nil {
			return err
		}
	}
	if err := failpoint.Hit(failpoint.NetNotProbed); err != nil {
		return err
	}
	probe, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if err := g.probe(probe, cp.Targets); err != nil {
		if ctx.Err() != nil && context.Cause(ctx) != nil {
			return context.Cause(ctx)
		}
		return &badProbe{err}
	}
	if err := failpoint.Hit(failpoint.NetNotCommitted); err != nil {
		return err
	}
	return g.still(cp)
}

// badProbe says that the change itself is at fault.
type badProbe struct{ err error }

func (b *badProbe) Error() string { return b.err.Error() }

// arm makes the checkpoint durable and starts its watchdog.
func (g *Guard) arm(ctx context.Context, cp *Checkpoint) error {
	if err := g.write(cp); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.NetArmed); err != nil {
		return err
	}
	if err := g.startWatchdog(ctx, cp); err != nil {
		if gone := g.remove(); gone != nil {
			return gone
		}
		return fault.New(fault.Transient, "the watchdog that would undo it does not start: %w", err)
	}
	// Starting it is not held against the change.
	cp.Deadline = boottime() + g.o.Limit
	return g.write(cp)
}

// checkpoint reads what the change bears on.
func (g *Guard) checkpoint(ctx context.Context, c Change) (*Checkpoint, error) {
	o, err := g.o.Host.Observe(ctx)
	if err != nil {
		return nil, err
	}
	cp := &Checkpoint{
		Version: checkpointVersion, ID: newID(), Object: c.Object, Key: c.Key, Namespace: g.o.Namespace,
		Boot: bootID(), Phase: Changing, Made: time.Now().UTC(), Touched: touched(c.Steps), Confirm: c.Confirm,
	}
	cp.Deadline = boottime() + watchdogLimit + g.o.Limit
	keep := slices.Clone(cp.Touched)
	for _, r := range o.Routes {
		if r.Default() && r.Link != "" && !slices.Contains(keep, r.Link) {
			keep = append(keep, r.Link)
		}
	}
	cp.Before = only(o, keep)
	cp.Sysctls = g.sysctls(cp.Touched)
	cp.Targets = g.targets(ctx, o)
	return cp, nil
}

// touched are the links that the steps change.
func touched(steps []hostnet.Step) []string {
	var links []string
	for _, s := range steps {
		for _, l := range []string{s.Link, s.Bridge} {
			if l != "" && !slices.Contains(links, l) {
				links = append(links, l)
			}
		}
	}
	return links
}

// only leaves what belongs to the links.
func only(o hostnet.Observed, links []string) (kept hostnet.Observed) {
	for _, l := range o.Links {
		if slices.Contains(links, l.Name) {
			kept.Links = append(kept.Links, l)
			kept.Addresses = append(kept.Addresses, o.AddressesOf(l.Name)...)
			kept.Routes = append(kept.Routes, o.RoutesOf(l.Name)...)
		}
	}
	for _, n := range o.Neighbours {
		if slices.Contains(links, n.Link) {
			kept.Neighbours = append(kept.Neighbours, n)
		}
	}
	return kept
}

func (g *Guard) lockPath(name string) string { return filepath.Join(g.o.Dir, "lock", name) }
