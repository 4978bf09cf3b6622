package agent

import (
	"os/user"
	"strconv"

	"hostler/agent/api"
	"hostler/agent/services/adoption"
	"hostler/agent/services/guests"
	"hostler/agent/spec"
	"hostler/agent/workerapi"
	"hostler/containerbroker"
)

// server creates the API's server.
func (h *host) server(o Options) (*api.Server, error) {
	return api.NewServer(api.Options{
		Backend: h.store,
		Service: api.Service{
			Planner: planner{h}, Guests: h.guests(), Images: h.imageService(), Builder: h.imageService(),
			Host: hostReporter{h}, Adopter: h.adopter(), Exporter: h.adopter(), Guard: guards{h},
		},
		Gatherer: h.metrics.Registry, Logger: h.logger.With("part", "api"), Clock: h.now,
		Version: o.Version, Namespace: h.config().Namespace,
		AdminGroup: adminGroup, ReadGroup: readGroup, ReadersSeeConsoles: func() bool { return h.config().API.ReadersSeeConsoles }, WorkerUsers: workerUsers(h.types()), Learned: h.learned, Count: h.count, Unread: h.declarations.Unread,
	})
}

// count adds the counts that a type's provisioner sent.
func (h *host) count(t spec.ContainerType, n workerapi.Counts) {
	worker := "provisioner-" + string(t)
	h.metrics.Add(worker, n)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.passes == nil {
		h.passes = map[string]int64{}
	}
	h.passes[worker] += int64(len(n.Passes))
}

// guests gives the API access into instances.
func (h *host) guests() *guests.Access {
	return &guests.Access{Store: h.store, Dir: h.paths.Consoles(), Broker: h.broker}
}

// adopter takes over undeclared instances for the API.
func (h *host) adopter() adoption.Adopter {
	return adoption.Adopter{
		Store: h.store, Types: h.types(), Broker: h.broker, Host: h.hostRecord, Namespace: h.config().Namespace, NewToken: newToken, Now: h.now,
	}
}

func (h *host) broker(t spec.ContainerType) (containerbroker.Broker, error) {
	d, err := h.driver(t)
	return d.Broker, err
}

// The groups of the API's users: adminGroup may change, readGroup may read.
const (
	adminGroup = "hostler-admin"
	readGroup  = "hostler"
)

// workerUsers maps the users of the provisioners' units to their types. A type
// whose user does not exist has no unit.
func workerUsers(types []spec.ContainerType) map[uint32]spec.ContainerType {
	users := map[uint32]spec.ContainerType{}
	for _, t := range types {
		u, err := user.Lookup("hostler-" + string(t))
		if err != nil {
			continue
		}
		if uid, err := strconv.ParseUint(u.Uid, 10, 32); err == nil {
			users[uint32(uid)] = t
		}
	}
	return users
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

// socketGroups returns the groups that may reach the socket, or none if the
// package's groups do not exist.
func socketGroups() (gids []int) {
	for _, name := range []string{readGroup, adminGroup} {
		if gid := groupID(name); gid != 0 {
			gids = append(gids, gid)
		}
	}
	return gids
}
