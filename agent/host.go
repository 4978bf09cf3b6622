package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"hostler/agent/api"
	"hostler/agent/conffiles"
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
	"hostler/internal/paths"
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
	logger  *slog.Logger
	now     func() time.Time
	started time.Time
	// program is the path of hostlerd; see Options.Program.
	program string
	// placement says where the provisioners run.
	placement Placement
	sources   storageprovisioner.Sources
	storage   *storageprovisioner.Worker
	// guard guards changes of the host's own network. guardEnds signals the end of
	// a change that waited for confirmation.
	guard     *guard.Guard
	guardEnds chan struct{}
	listener  *api.RenewableListener
	// declarations and configuration follow conf.d and hostler.yaml.
	declarations  *conffiles.Declarations
	configuration *conffiles.Configuration
	persister     *persist.Keeper

	// begun is the configuration at the start of this process.
	begun spec.Config
	// lost says that records were lost and may not all be restored yet.
	lost atomic.Bool
	// learning is held while records are restored from stamps. It guards compared:
	// the types whose instances this process compared with the records.
	learning sync.Mutex
	compared map[spec.ContainerType]bool
	// young says that at the start of this process no container type had been
	// compared, or the store had no lineage id.
	young bool
	// relearn starts the recovery workers of all types again; nil in some tests.
	relearn func()
	// claims are the locks on the hypervisors; see claim.
	claims map[spec.ContainerType]*hostlock.Lock

	mu           sync.Mutex
	cfg          spec.Config
	made         map[spec.ContainerType]driver
	initialisers map[spec.ContainerType]initialisers.Initialiser
	notices      map[string]string
	// passes counts the passes of workers in separate processes, by name.
	passes map[string]int64
	// waits lists the purposes of the operations that wait for the host lock.
	waits []string
}

// driver holds a hypervisor's broker. Images is nil if the hypervisor keeps no
// images.
type driver struct {
	Broker containerbroker.Broker
	Images containerbroker.ImageStore
}

// driver returns the broker of a type. It creates the broker once the
// hypervisor exists, and fails with fault.NotReady before that.
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
	if c.socket != nil {
		if err := h.claim(t, c.socket(h.paths), h.cfg.Namespace); err != nil {
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

// initialiser returns the initialiser of a type, always the same.
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

// notice shows a sentence in the host's status. An empty text under the same
// key clears it.
func (h *host) notice(key, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if text == "" {
		delete(h.notices, key)
		return
	}
	h.notices[key] = text
}

func (h *host) hostObject(ctx context.Context) (state.Object, error) {
	return h.store.Get(ctx, state.ID{Kind: spec.KindHost, Name: spec.HostName})
}

// hostRecord returns the host's record. Before the first write it contains the
// configuration that was read.
func (h *host) hostRecord(ctx context.Context) (spec.HostRecord, error) {
	record := spec.HostRecord{Config: h.config()}
	o, err := h.hostObject(ctx)
	if fault.Is(err, fault.NotFound) {
		return record, nil
	}
	if err != nil {
		return record, fmt.Errorf("cannot read the host's record: %w", err)
	}
	err = o.Decode(&record, nil)
	return record, err
}

func (h *host) hostStatus(ctx context.Context) (spec.HostStatus, error) {
	var status spec.HostStatus
	o, err := h.hostObject(ctx)
	if err != nil {
		return status, fmt.Errorf("cannot read the host's record: %w", err)
	}
	err = o.Decode(nil, &status)
	return status, err
}

func (h *host) writeHostStatus(ctx context.Context, s spec.HostStatus) error {
	_, err := h.store.Write(ctx, state.Atomic, state.Write{
		ID:       state.ID{Kind: spec.KindHost, Name: spec.HostName},
		Revision: state.AnyRevision, Status: spec.Encode(s),
	})
	if err != nil {
		return fmt.Errorf("cannot write the host's status: %w", err)
	}
	return nil
}

// writeConfig writes the configuration into the host's record, which every
// worker reads. Settings that the user made at run time stay.
func (h *host) writeConfig(ctx context.Context, c spec.Config) error {
	if err := h.updateHost(ctx, func(r *spec.HostRecord) { r.Config, r.Facts = c, facts() }); err != nil {
		return err
	}
	h.mu.Lock()
	h.cfg = c
	h.mu.Unlock()
	return nil
}

// updateHost changes the host's record. It repeats the change after a conflict
// with another write, at most four times.
func (h *host) updateHost(ctx context.Context, change func(*spec.HostRecord)) error {
	for try := 1; ; try++ {
		var record spec.HostRecord
		o, err := h.hostObject(ctx)
		switch {
		case fault.Is(err, fault.NotFound):
		case err != nil:
			return fmt.Errorf("cannot read the host's record: %w", err)
		default:
			if err = o.Decode(&record, nil); err != nil {
				return err
			}
		}
		change(&record)
		id := state.ID{Kind: spec.KindHost, Name: spec.HostName}
		_, err = h.store.Write(ctx, state.Atomic, state.Write{ID: id, Revision: o.Revision, Spec: spec.Encode(record), Life: state.Alive})
		if err == nil {
			return nil
		}
		if try == 5 || !fault.Is(err, fault.Conflict) {
			return fmt.Errorf("cannot write the host's record: %w", err)
		}
	}
}
