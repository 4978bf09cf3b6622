package agent

import (
	"context"
	"maps"
	"os/user"
	"slices"
	"strconv"

	"hostler/agent/api"
	"hostler/agent/client"
	"hostler/agent/recovery"
	"hostler/agent/services/adoption"
	"hostler/agent/services/guests"
	"hostler/agent/services/hostreport"
	"hostler/agent/services/migration"
	"hostler/agent/services/planning"
	"hostler/agent/spec"
	"hostler/agent/workerapi"
	"hostler/containerbroker"
)

// server creates the API's server.
func (h *host) server(o Options) (*api.Server, error) {
	return api.NewServer(api.Options{
		Backend: h.store,
		Service: api.Service{
			Planner: h.planner(), Guests: h.guests(), Images: h.imageService(), Builder: h.imageService(),
			Host: h.reporter(), Adopter: h.adopter(), Exporter: h.adopter(), Guard: h.guard,
			Migrator: migration.Planner{Hypervisors: h.hypervisors(), Store: h.store},
		},
		Gatherer: h.metrics.Registry, Logger: h.logger.With("part", "api"), Clock: h.now,
		Version: o.Version, Namespace: h.config().Namespace,
		AdminGroup: adminGroup, ReadGroup: readGroup, ReadersSeeConsoles: func() bool { return h.config().API.ReadersSeeConsoles },
		Workers: func() api.Workers { return workerUnits(h.types(), user.Lookup, user.LookupGroup) },
		Count:   func(t spec.ContainerType, n workerapi.Counts) { h.metrics.Add("provisioner-"+string(t), n) }, Unread: h.declarations.Unread, Folder: h.declarations,
	})
}

// guests returns the part that runs commands and consoles in instances for the
// API.
func (h *host) guests() *guests.Access {
	return &guests.Access{Store: h.store, Dir: h.paths.Consoles(), Broker: h.broker}
}

// adopter returns the part that takes undeclared instances under declaration
// for the API.
func (h *host) adopter() adoption.Adopter {
	return adoption.Adopter{
		Store: h.store, Types: h.types(), Broker: h.broker, Host: h.hostRecord, Namespace: h.config().Namespace, NewToken: newToken, Now: h.now,
	}
}

// planner returns the part that predicts the effects of an apply.
func (h *host) planner() planning.Planner {
	return planning.Planner{
		Store: h.store, Host: h.hostRecord, Types: h.types(), Broker: h.broker, Initialiser: h.initialiser, Sources: h.sources,
		Networks: h.networkEyes, Images: h.imageService(), Limitless: h.limitless, StateDir: h.paths.StateDir, Now: h.now, Log: h.logger,
	}
}

// limitless returns the notice that root disks of the type have no size limit
// on this host, or "" if they have one.
func (h *host) limitless(t spec.ContainerType) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.notices[h.drivers[t].rootDiskNotice]
}

// reporter returns the part that reports on the host as a whole.
func (h *host) reporter() hostreport.Reporter {
	return hostreport.Reporter{
		Paths: h.paths, Store: h.store, Config: h.config, Host: h.hostRecord, Types: h.types(), Broker: h.broker, Initialiser: h.initialiser,
		Sources: h.sources, Guard: h.guard, Workers: h.workers, Locks: h.locks, Notices: h.allNotices, Started: h.started, Now: h.now,
	}
}

// workers lists the workers of this process and of separate processes.
func (h *host) workers(ctx context.Context) []client.Worker {
	rows := h.sup.List()
	if h.placement == Inside {
		return rows
	}
	for _, t := range h.types() {
		name := "provisioner-" + string(t)
		row := client.Worker{Name: name, State: "elsewhere", Message: "a process of its own", Since: h.started}
		if h.placement == Units {
			if unit, err := provisionerUnit(t).Row(ctx); err != nil {
				row.Message = err.Error()
			} else {
				row.State, row.Message = unit.State, unit.Message
				if !unit.Since.IsZero() {
					row.Since = unit.Since
				}
			}
		}
		row.Passes = h.metrics.Passes(name)
		rows = append(rows, row)
	}
	return rows
}

// allNotices returns the notices of this process and of the host's status.
func (h *host) allNotices(ctx context.Context) []string {
	h.mu.Lock()
	texts := slices.Sorted(maps.Values(h.notices))
	h.mu.Unlock()
	if record, status, _, err := h.object().Read(ctx); err == nil {
		if why := record.Recovery.Withheld(""); why != "" && record.Recovery.CopiedTo == "" && record.Recovery.Phase == spec.RecoveryScanning {
			texts = append(texts, "records may be missing, so the agent deletes nothing yet: it waits for "+why)
		}
		if why := record.Recovery.Copied(); why != "" {
			texts = append(texts, why+", e.g. because this host's disk is a copy, so the agent deletes nothing; `hostler adopt --host` makes it this host's store, `hostler clean` removes it")
		}
		texts = append(texts, recovery.Current(status.Notices)...)
	}
	return texts
}

// types returns the container types for which the agent has a driver, sorted.
func (h *host) types() []spec.ContainerType {
	return slices.Sorted(maps.Keys(h.drivers))
}

func (h *host) broker(t spec.ContainerType) (containerbroker.Broker, error) {
	d, err := h.driver(t)
	return d.Broker, err
}

// These are the groups of the API's users. Members of adminGroup have
// permission to change objects, members of readGroup to read them.
const (
	adminGroup = "hostler-admin"
	readGroup  = "hostler"
)

// workerUnits returns the user and group of each provisioner's unit. A missing
// user or group is left out. A provisioner that runs as root is known by its
// group alone, so the group does not depend on the user.
func workerUnits(types []spec.ContainerType, lookupUser func(string) (*user.User, error), lookupGroup func(string) (*user.Group, error)) api.Workers {
	workers := api.Workers{Users: map[uint32]spec.ContainerType{}, Groups: map[uint32]spec.ContainerType{}}
	for _, t := range types {
		name := "hostler-" + string(t)
		if u, err := lookupUser(name); err == nil {
			if uid, err := strconv.ParseUint(u.Uid, 10, 32); err == nil {
				workers.Users[uint32(uid)] = t
			}
		}
		if g, err := lookupGroup(name); err == nil {
			if gid, err := strconv.ParseUint(g.Gid, 10, 32); err == nil && gid != 0 {
				workers.Groups[uint32(gid)] = t
			}
		}
	}
	return workers
}

// groupID returns a group's id, or 0 (root's) if the group does not exist.
func groupID(name string) int {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return 0
	}
	return gid
}

// socketGroups returns the groups that have permission to use the socket. It
// leaves out groups that do not exist.
func socketGroups() (gids []int) {
	for _, name := range []string{readGroup, adminGroup} {
		if gid := groupID(name); gid != 0 {
			gids = append(gids, gid)
		}
	}
	return gids
}
