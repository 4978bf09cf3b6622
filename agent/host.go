package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"hostler/agent/api"
	"hostler/agent/conffiles"
	"hostler/agent/reconcile"
	"hostler/agent/recovery"
	"hostler/agent/services/metrics"
	"hostler/agent/services/supervise"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/hostnet/guard"
	"hostler/hostnet/persist"
	"hostler/initialisers"
	"hostler/internal/fault"
	"hostler/internal/hostlock"
	"hostler/internal/idle"
	"hostler/internal/paths"
	"hostler/packaging"
)

// host holds the state that the agent's workers and its API share.
type host struct {
	paths   paths.Paths
	local   *state.Local
	store   state.Backend
	images  *images.Cache
	drivers map[spec.ContainerType]constructors
	sup     *supervise.Supervisor
	metrics *metrics.Metrics
	memory  *idle.Releaser
	logger  *slog.Logger
	now     func() time.Time
	started time.Time
	// program is the path of hostlerd; see Options.Program.
	program string
	// placement says where the provisioners run.
	placement Placement
	sources   storageprovisioner.Sources
	storage   *storageprovisioner.Worker
	// guard guards changes of the host's own network.
	guard    *guard.Guard
	listener *api.RenewableListener
	// declarations and configuration follow conf.d and hostler.yaml.
	declarations  *conffiles.Declarations
	configuration *conffiles.Configuration
	persister     *persist.Keeper

	recovery *recovery.Recovery
	// claims are the locks on the hypervisors; see claim().
	claims map[spec.ContainerType]*hostlock.Lock
	// hold keeps installations back while cloud-init is at work.
	hold *packaging.Hold

	mu           sync.Mutex
	cfg          spec.Config
	made         map[spec.ContainerType]driver
	initialisers map[spec.ContainerType]initialisers.Initialiser
	// former holds the recorded folders of instances that are not the hypervisor's
	// present ones, until the type's setup finds the instances.
	former  map[spec.ContainerType]formerFolder
	notices map[string]string
	// waits lists the purposes of the operations that wait for the host lock.
	waits []string
}

// driver holds a hypervisor's broker. Images is nil if the hypervisor keeps no
// images.
type driver struct {
	Broker containerbroker.Broker
	Images containerbroker.ImageStore
}

// driver returns the broker of a type and creates it on first use. It fails
// with fault.NotReady until the hypervisor exists.
func (h *host) driver(t spec.ContainerType) (driver, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d, ok := h.made[t]; ok {
		return d, nil
	}
	c, ok := h.drivers[t]
	if !ok {
		return driver{}, fault.New(fault.Invalid, "container type %q is not supported by this agent", t)
	}
	if former, ok := h.former[t]; ok {
		if here := c.folderIn(h.paths, h.cfg.Types); here != "" && here != former.folder {
			return driver{}, former.apart(t, here, c.back(h.paths, former.folder))
		}
	}
	if c.socket != nil {
		if err := h.claim(t, c.socket(h.paths, h.cfg.Types), h.cfg.Namespace); err != nil {
			return driver{}, err
		}
	}
	d, err := c.driver(h)
	if err != nil {
		return driver{}, err
	}
	h.made[t] = d
	return d, nil
}

// initialiser returns the initialiser of a type. Each call returns the same
// one.
func (h *host) initialiser(t spec.ContainerType) initialisers.Initialiser {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.initialisers[t] == nil {
		h.initialisers[t] = h.drivers[t].initialiser(h, h.cfg)
	}
	return h.initialisers[t]
}

func (h *host) config() spec.Config {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cfg
}

// notice shows a sentence in the host's status. An empty text removes the
// sentence under key.
func (h *host) notice(key, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if text == "" {
		delete(h.notices, key)
		return
	}
	h.notices[key] = text
}

func (h *host) hostRecord(ctx context.Context) (spec.HostRecord, error) {
	record, _, _, err := h.object().Read(ctx)
	return record, err
}

// object is the host's object in the store.
func (h *host) object() reconcile.Host { return reconcile.Host{Store: h.store} }

// writeConfig writes the configuration into the host's record, which every
// worker reads. It keeps the settings that the user made at run time.
func (h *host) writeConfig(ctx context.Context, c spec.Config) error {
	err := h.object().Update(ctx, func(r *spec.HostRecord, _ *spec.HostStatus) { r.Config, r.Facts = c, facts() })
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.cfg = c
	h.mu.Unlock()
	return nil
}
