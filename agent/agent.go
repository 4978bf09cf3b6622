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
	"hostler/agent/recovery"
	"hostler/agent/services/metrics"
	"hostler/agent/services/supervise"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
	"hostler/containerbroker"
	"hostler/hostnet"
	"hostler/hostnet/persist"
	"hostler/initialisers"
	"hostler/internal/hostlock"
	"hostler/internal/idle"
	"hostler/internal/paths"
	"hostler/internal/units"
	"hostler/packaging"
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
// cannot work at all. The agent's end changes no guest.
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
	if h.listener, err = api.Listen(h.logger, o.Paths.Socket(), socketGroups()...); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.noticeRelease()
	h.prepareStorage(ctx)
	h.prepareNetworks(ctx)
	read := h.declarations.News()
	served := make(chan error, 1)
	go func() { defer cancel(); served <- server.Serve(ctx, h.listener) }()
	go func() { // the next start opens the store again and checks it
		select {
		case <-h.local.Failed():
			cancel()
		case <-ctx.Done():
		}
	}()
	for _, w := range Workers() {
		if w.start != nil {
			h.sup.Start(ctx, w.Name, w.start(h, server))
		}
		if w.first {
			// The first passes of the workers that follow would slow the reading, and
			// would then have to be repeated with what it declares.
			awaitReading(ctx, read, headStart)
		}
	}
	h.sup.Start(ctx, "watchdog", keepAlive(h.answers, h.logger))
	h.sup.Start(ctx, "memory", h.memory.Run)
	// A caller of `hostler wait` that systemd starts after the agent then finds the
	// declared objects.
	if !awaitReading(ctx, read, readingLimit-headStart) && ctx.Err() == nil {
		h.logger.Warn("The agent is ready although conf.d was not read yet.", "limit", readingLimit)
	}
	h.logger.Info("The agent is ready.", "socket", o.Paths.Socket(), "version", o.Version)
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		h.logger.Warn("The service manager cannot be notified that the agent is ready.", "error", err)
	}
	err = errors.Join(<-served, h.local.Health())
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	cancel()
	h.sup.Wait()
	return err
}

// readingLimit bounds the time for which the agent's readiness waits for the
// first reading of conf.d. It is less than the unit's TimeoutStartSec. headStart
// bounds the time for which the workers of the host wait for it.
const (
	readingLimit = 30 * time.Second
	headStart    = time.Second
)

// awaitReading waits until conf.d was read once, at most for limit, and reports
// whether it was.
func awaitReading(ctx context.Context, read <-chan struct{}, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-read:
		return true
	case <-ctx.Done():
		return false
	}
}

// open reads the configuration, claims the hypervisors and opens the store.
func open(ctx context.Context, o Options) (*host, error) {
	h := &host{
		paths: o.Paths, drivers: drivers(), logger: o.Logger, now: time.Now, started: time.Now(), placement: o.Provisioners, program: o.Program,
		metrics: metrics.New(o.Version), made: map[spec.ContainerType]driver{},
		initialisers: map[spec.ContainerType]initialisers.Initialiser{}, notices: map[string]string{},
		claims: map[spec.ContainerType]*hostlock.Lock{}, former: map[spec.ContainerType]formerFolder{}, memory: idle.New(o.Logger.With("part", "memory")),
	}
	h.sup = supervise.New(o.Logger, h.now)
	h.hold = packaging.NewHold(o.Paths.CloudInit(), h.cloudInitFailed, h.now)
	h.followFiles()
	config, err := h.configuration.Await(ctx)
	if err != nil {
		return nil, err
	}
	// Claim before any file is made, so that an agent whose claim fails leaves
	// no files behind.
	if err := h.claimAll(ctx, config); err != nil {
		return nil, errors.Join(err, h.unclaim())
	}
	if err := os.MkdirAll(o.Paths.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make %s: %w", o.Paths.StateDir, err)
	}
	var store *state.Local
	var report state.OpenReport
	err = afterAnother(ctx, func() (err error) {
		store, report, err = state.Open(ctx, state.Options{Dir: o.Paths.StateDir, Clock: h.now, Logger: o.Logger})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open the store in %s: %w", o.Paths.StateDir, err)
	}
	// Make RunDir only after the store is open, so that an agent that finds
	// another agent at work leaves no files behind.
	if err := os.MkdirAll(o.Paths.RunDir, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make %s: %w", o.Paths.RunDir, err), store.Close())
	}
	if config, err = h.resume(ctx, store, config); err != nil {
		return nil, errors.Join(err, h.unclaim(), store.Close())
	}
	h.local = store
	h.store = h.sparing(metrics.TimedStore{Backend: store, Wait: h.metrics.StoreWait})
	h.metrics.Registry.MustRegister(metrics.NewStateCollector(store), metrics.StoreSyncs(store.Syncs))
	h.recovery = h.newRecovery()
	err = h.recovery.Start(ctx, report, facts().Boot, machineDigest(o.Paths.Host("etc/machine-id")))
	if err == nil {
		err = h.writeConfig(ctx, config)
	}
	if err == nil {
		err = h.readFolders(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if err := h.openImages(); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	h.persister = &persist.Keeper{Paths: h.paths, Namespace: config.Namespace, Dhclient: h.runner(units.DHClient), Dhcpcd: h.runner(units.DHCPCD)}
	h.sources = h.storageSources()
	h.storage = h.newStorage()
	return h, nil
}

// setUp returns the worker that prepares the host for one container type.
func (h *host) setUp(t spec.ContainerType) func(context.Context) error {
	return func(ctx context.Context) error {
		common := h.common("setup-" + string(t))
		common.Metrics = nil
		return containersetup.New(common, containersetup.Options{
			Type: t, Initialiser: h.initialiser(t), Provisioner: h.provisioner(ctx, t),
			Lock: h.lock, Folder: h.checkFolder(t), Prepared: func(ctx context.Context) error { return h.recovery.Prepared(ctx, t) },
			Clear: func(ctx context.Context) ([]string, bool, error) {
				d, err := h.driver(t)
				cleaner, able := d.Broker.(containerbroker.Cleaner)
				if err != nil || !able { // there is no hypervisor yet, or it leaves no files
					return nil, false, nil
				}
				return cleaner.MoveLeftovers(ctx)
			},
		}).Run(ctx)
	}
}

// newRecovery creates the recovery of lost records.
func (h *host) newRecovery() *recovery.Recovery {
	return recovery.New(h.common("recovery"), recovery.Options{
		Types: h.types(), Broker: h.broker, NewToken: newToken, Noted: h.local.MarkComplete, StateDir: h.paths.StateDir,
		Storage:   func(ctx context.Context) (storageprovisioner.Observed, error) { return h.sources.All(ctx) },
		Namespace: func() string { return h.config().Namespace },
	})
}

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
// agent with the placement Units left, because a type must have only one
// provisioner.
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

// provisionerUnit returns the unit of a type's provisioner. The unit has only
// the rights that it needs. Its crash affects no other worker.
func provisionerUnit(t spec.ContainerType) units.Service {
	return units.Service("hostler-provisioner@" + string(t) + ".service")
}

// provision runs a type's provisioner on the store in c. In a separate process
// that store is the agent's socket, otherwise the local store.
func provision(ctx context.Context, t spec.ContainerType, c reconcile.Common, broker containerbroker.Broker, images provisioner.Images, config spec.Config) error {
	return provisioner.New(c, provisioner.Options{
		Type: t, Broker: broker, Differ: broker.(containerbroker.Differ), Images: images,
		Defaults: provisioner.ConfigOf(spec.HostRecord{Config: config}, t), NewToken: newToken,
	}).Run(ctx)
}
