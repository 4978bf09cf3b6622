// Package guard prevents changes of the host's own network from locking out its
// operators. It writes the previous state to the disk before the first step. A
// separate process, the watchdog, restores that state at a deadline, whatever
// happens to the agent. The guard keeps the change only after a successful
// probe, and after the operator's confirmation if required. It then removes the
// checkpoint, which ends the watchdog.
package guard

import (
	"cmp"
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
	// defaultLimit is the time for a change and its probes, after which the
	// change is undone. All this takes less than 10 s.
	defaultLimit = 8 * time.Second
	// probeLimit is the time for the host to become reachable after a change.
	// The kernel asks a silent neighbour three times, a second apart.
	probeLimit = 4 * time.Second
	// baseLimit is the time for a probe before the change. A target that does not
	// answer before the change is not probed after it.
	baseLimit = 1500 * time.Millisecond
	// watchdogLimit is the time for the watchdog to start.
	watchdogLimit = 5 * time.Second
	// look is the interval of checking the checkpoint and the watchdog while a
	// change is armed. Polling notices a changed deadline; a timer would not.
	look = 100 * time.Millisecond
	// maxTries is the number of tries for a change that is interrupted before
	// its probe, e.g. by a crash of the agent.
	maxTries = 3
)

// Sysctls reads and writes kernel parameters, named like
// net/ipv6/conf/eth0/accept_ra.
type Sysctls interface {
	Read(name string) (string, error)
	Set(name, value string) error
}

// Options configure a Guard.
type Options struct {
	// Dir is the guard's own folder, created if absent (0700).
	Dir       string
	Namespace string
	Host      *hostnet.Host
	// Start starts the watchdog, a process that outlives the agent and calls
	// Watch with the same folder.
	Start   func(ctx context.Context) error
	Sysctls Sysctls // if nil, no parameters are restored
	// Probes returns addresses that must stay reachable if they are reachable
	// before the change.
	Probes func() []netip.Addr
	// Limit is the time for a change; 0 means defaultLimit.
	Limit time.Duration
	Log   *slog.Logger
}

// Guard guards the changes of a host. It is safe for concurrent use; only one
// change is armed at a time.
type Guard struct {
	o    Options
	busy sync.Mutex // held while a change is being made
	mu   sync.Mutex
	// clients are the addresses of recent API clients that changed something.
	clients map[netip.Addr]time.Time
	ends    chan struct{}
	// armed gets a value when this process writes a checkpoint.
	armed chan struct{}
}

// New returns the Guard that keeps its files in o.Dir.
func New(o Options) *Guard {
	o.Limit = cmp.Or(o.Limit, defaultLimit)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Probes == nil {
		o.Probes = func() []netip.Addr { return nil }
	}
	return &Guard{o: o, clients: map[netip.Addr]time.Time{}, ends: make(chan struct{}, 1), armed: make(chan struct{}, 1)}
}

// Ends returns a channel that gets a signal after a change that awaited
// confirmation is kept or undone.
func (g *Guard) Ends() <-chan struct{} { return g.ends }

func (g *Guard) ended() {
	select {
	case g.ends <- struct{}{}:
	default: // a signal is already pending
	}
}

// Change is a change of the host's own network.
type Change struct {
	// Object is the object to change, e.g. network/lan. Key identifies its wanted
	// state. A change that was undone is not repeated under the same key.
	Object, Key string
	Steps       []hostnet.Step
	// Begin, if set, is called when the change is armed, before the first step. If it
	// fails, no step is made, and Run returns its error. This is no attempt of the
	// change, so no outcome is recorded.
	Begin func(ctx context.Context) error
	// Confirm is the time to wait for Guard.Confirm after a successful probe; 0
	// means that the probe suffices.
	Confirm time.Duration
}

// Run makes a change. It returns nil when the change is kept, and
// fault.NotReady while it awaits Confirm or another change is in progress.
// After any other error the host is in its previous state; fault.NeedsOperator
// means that a retry is useless.
func (g *Guard) Run(ctx context.Context, c Change) error {
	if !g.busy.TryLock() {
		return fault.New(fault.NotReady, "cannot change %s: another change of the host's network is under way", c.Object)
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
	if err := g.arm(ctx, cp, c.Begin); err != nil {
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

// make applies the steps and then probes the targets. After an error the caller
// must undo all steps.
func (g *Guard) make(ctx context.Context, cp *checkpoint, c Change) error {
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

// badProbe means that the change itself broke the network.
type badProbe struct{ err error }

func (b *badProbe) Error() string { return b.err.Error() }

// arm makes the checkpoint durable, starts its watchdog and then calls begin, which
// may be nil.
func (g *Guard) arm(ctx context.Context, cp *checkpoint, begin func(context.Context) error) error {
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
		return fault.New(fault.Transient, "the watchdog that would revert it does not start: %w", err)
	}
	if begin != nil {
		limited, cancel := context.WithTimeout(ctx, g.o.Limit) // ends before the deadline
		defer cancel()
		if err := begin(limited); err != nil {
			if gone := g.remove(); gone != nil {
				return gone
			}
			return err
		}
	}
	// The change's time starts now. An operator may have reverted it already.
	return g.locked(context.WithoutCancel(ctx), cp, func() error {
		cp.Deadline = boottime() + g.o.Limit
		return g.write(cp)
	})
}

// checkpoint records the state that the change affects.
func (g *Guard) checkpoint(ctx context.Context, c Change) (*checkpoint, error) {
	o, err := g.o.Host.Observe(ctx)
	if err != nil {
		return nil, err
	}
	cp := &checkpoint{
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

// touched returns the links that the steps change.
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

// only returns the part of o that belongs to the links.
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
