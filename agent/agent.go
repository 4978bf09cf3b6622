// Package agent puts hostler together: it opens the store, starts the workers
// and serves the API. It is the only place that names concrete drivers.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/google/uuid"

	"hostler/agent/api"
	"hostler/agent/containersetup"
	"hostler/agent/provisioner"
	"hostler/agent/reconcile"
	"hostler/agent/services/metrics"
	"hostler/agent/services/supervise"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/hostnet"
	"hostler/hostnet/persist"
	"hostler/initialisers"
	"hostler/internal/fault"
	"hostler/internal/hostlock"
	"hostler/internal/paths"
	"hostler/internal/units"
)

// Options holds the settings from the command line.
type Options struct {
	Paths   paths.Paths
	Version string
	Logger  *slog.Logger
	// Provisioners says where the provisioners run.
	Provisioners Placement
	// Program is the path of hostlerd, which the agent runs as a separate process
	// to read images. If empty, the agent reads images itself, e.g. in tests.
	Program string
}

func newToken() string { return uuid.NewString() }

// Run runs the agent. It returns nil when ctx ends, or an error when the agent
// cannot work at all. Its end changes no guest.
func Run(ctx context.Context, o Options) error {
	h, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = h.unclaim() }() // the kernel frees the locks if this fails
	defer h.local.Close()
	var links *hostnet.Host
	if h.guard, links, err = h.newGuard(); err != nil {
		return err
	}
	defer links.Close()
	server, err := h.server(o)
	if err != nil {
		return err
	}
	if h.listener, err = api.ListenRenewable(h.logger, o.Paths.Socket(), socketGroups()...); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.prepareStorage(ctx)
	h.prepareNetworks(ctx)
	h.relearn = func() {
		for _, t := range h.types() {
			h.sup.Start(ctx, "recovery-"+string(t), h.recover(t, lateness))
		}
	}
	h.relearn()
	for _, w := range Workers() {
		if w.start != nil {
			h.sup.Start(ctx, w.Name, w.start(h, server))
		}
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, h.listener) }()
	h.sup.Start(ctx, "watchdog", keepAlive(h.answers, h.logger))
	h.logger.Info("The agent is ready.", "socket", o.Paths.Socket(), "version", o.Version)
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		h.logger.Warn("The service manager cannot be notified that the agent is ready.", "error", err)
	}
	err = <-served
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	cancel()
	h.sup.Wait()
	return err
}

// open reads the configuration, claims the hypervisors and opens the store.
func open(ctx context.Context, o Options) (*host, error) {
	h := &host{
		paths: o.Paths, drivers: drivers(), logger: o.Logger, now: time.Now, started: time.Now(), placement: o.Provisioners, program: o.Program,
		metrics: metrics.New(o.Version), made: map[spec.ContainerType]driver{},
		initialisers: map[spec.ContainerType]initialisers.Initialiser{}, notices: map[string]string{},
		guardEnds: make(chan struct{}, 1), compared: map[spec.ContainerType]bool{}, claims: map[spec.ContainerType]*hostlock.Lock{},
	}
	h.sup = supervise.New(o.Logger, h.now)
	h.followFiles()
	config, err := h.configuration.Await(ctx)
	if err != nil {
		return nil, err
	}
	h.begun = config
	// Claim first: an agent that may not work leaves no files behind.
	if err := h.claimAll(ctx); err != nil {
		return nil, errors.Join(err, h.unclaim())
	}
	if err := os.MkdirAll(o.Paths.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make %s: %w", o.Paths.StateDir, err)
	}
	store, report, err := openStore(ctx, state.Options{Dir: o.Paths.StateDir, Clock: h.now, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("cannot open the store in %s: %w", o.Paths.StateDir, err)
	}
	// An agent that finds another agent at work leaves no files behind.
	if err := os.MkdirAll(o.Paths.RunDir, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make %s: %w", o.Paths.RunDir, err), store.Close())
	}
	h.local = store
	h.store = metrics.TimedStore{Backend: store, Wait: h.metrics.StoreWait}
	h.metrics.Registry.MustRegister(metrics.NewStateCollector(store), metrics.StoreSyncs(store.Syncs))
	if err := h.writeStart(ctx, config, facts().Boot, report); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if err := h.openImages(); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	h.persister = &persist.Keeper{Paths: h.paths, Namespace: config.Namespace, Clients: h.runner(units.DHClient)}
	h.sources = h.storageSources()
	h.storage = h.newStorage()
	return h, nil
}

// openStore waits up to a second for another agent that is about to end: a
// service manager may start the next agent before the files of the last are
// closed.
func openStore(ctx context.Context, o state.Options) (*state.Local, state.OpenReport, error) {
	deadline := time.Now().Add(time.Second)
	for {
		store, report, err := state.Open(ctx, o)
		if !fault.Is(err, fault.Conflict) || time.Now().After(deadline) {
			return store, report, err
		}
		select {
		case <-ctx.Done():
			return nil, report, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// setUp returns the worker that prepares the host for one container type.
func (h *host) setUp(t spec.ContainerType) func(context.Context) error {
	return func(ctx context.Context) error {
		common := h.common("setup-" + string(t))
		common.Metrics = nil
		return containersetup.New(common, containersetup.Options{
			Type: t, Initialiser: h.initialiser(t), Provisioner: h.provisioner(ctx, t),
			Lock: h.lock, Prepared: func(ctx context.Context) error { return h.prepared(ctx, t) },
			Clear: (&leftoverMover{host: h, t: t}).clear,
		}).Run(ctx)
	}
}

// prepared runs learn before a type's provisioner starts. If this store has
// learned the type before and the hypervisor does not answer, the provisioner
// starts anyway: it reports the silence in the machines' statuses, and recover
// tries again.
func (h *host) prepared(ctx context.Context, t spec.ContainerType) error {
	err := h.learn(ctx, t)
	if err != nil && !h.lost.Load() && h.learned(ctx, t) == nil {
		h.logger.Warn("Whether the store is an older copy is not known yet.", "type", t, "error", err)
		return nil
	}
	return err
}

// recover returns a worker that restores the records of a lost store from a
// hypervisor's instances, before the user declares anything again. The worker
// ends when that is done. It also ends when there is no such hypervisor, unless
// the store was lost or is an older copy: then the hypervisor may start after
// the agent, so the worker looks for it again after every.
func (h *host) recover(t spec.ContainerType, every time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			err := h.learn(ctx, t)
			switch absent := fault.Is(err, fault.NotReady); {
			case err == nil:
				return nil
			case h.lost.Load():
				if !absent {
					return err
				}
			case h.learned(ctx, t) != nil:
				if absent {
					return nil
				}
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(every):
			}
		}
	}
}

// lateness is the delay between two looks for a hypervisor that may start late.
const lateness = 10 * time.Second

// goroutineProvisioner runs a type's provisioner in a goroutine of this
// process.
type goroutineProvisioner struct {
	h    *host
	ctx  context.Context //nolint:containedctx // the agent's life, not a call's
	unit units.Service
	name string
	run  func(context.Context) error
}

// Start implements containersetup.Provisioner. It first stops the unit that an
// agent with the placement Units left: a type has one provisioner.
func (g goroutineProvisioner) Start(ctx context.Context) error {
	if hasUnits(g.h.paths) {
		if err := g.unit.End(ctx); err != nil {
			return err
		}
	}
	g.h.sup.Start(g.ctx, g.name, g.run)
	return nil
}

// Stop implements containersetup.Provisioner.
func (g goroutineProvisioner) Stop(context.Context) error {
	g.h.sup.Stop(g.name)
	return nil
}

// absentProvisioner stands for a provisioner that another process runs.
type absentProvisioner struct{}

// Start implements containersetup.Provisioner.
func (absentProvisioner) Start(context.Context) error { return nil }

// Stop implements containersetup.Provisioner.
func (absentProvisioner) Stop(context.Context) error { return nil }

func (h *host) provisioner(ctx context.Context, t spec.ContainerType) containersetup.Provisioner {
	name := "provisioner-" + string(t)
	switch h.placement {
	case Units:
		return provisionerUnit(t)
	case Elsewhere:
		return absentProvisioner{}
	}
	return goroutineProvisioner{h: h, ctx: ctx, unit: provisionerUnit(t), name: name, run: func(ctx context.Context) error {
		d, err := h.driver(t)
		if err != nil {
			return err
		}
		return provision(ctx, t, h.common(name), d.Broker, d.Images, h.config())
	}}
}

// provisionerUnit returns the unit of a type's provisioner. It has only the
// rights that it needs, and its crash affects no other worker.
func provisionerUnit(t spec.ContainerType) units.Service {
	return units.Service("hostler-provisioner@" + string(t) + ".service")
}

// provision runs a type's provisioner on the given store: the local store, or
// the agent's socket in a separate process.
func provision(ctx context.Context, t spec.ContainerType, c reconcile.Common, broker containerbroker.Broker, images provisioner.Images, config spec.Config) error {
	return provisioner.New(c, provisioner.Options{
		Type: t, Broker: broker, Differ: broker.(containerbroker.Differ), Images: images,
		Defaults: provisioner.ConfigOf(spec.HostRecord{Config: config}, t), NewToken: newToken,
	}).Run(ctx)
}
