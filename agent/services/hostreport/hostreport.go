// Package hostreport answers the API's requests about the whole host: its
// status, the checks of doctor, and its block devices.
package hostreport

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"hostler/agent/api"
	"hostler/agent/client"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
	"hostler/containerbroker"
	"hostler/hostnet/guard"
	"hostler/initialisers"
	"hostler/internal/paths"
)

// Reporter implements api.Host.
type Reporter struct {
	Paths  paths.Paths
	Store  state.Store
	Config func() spec.Config
	Host   func(context.Context) (spec.HostRecord, error)
	// Types are the container types, sorted. Broker fails for a type whose
	// hypervisor does not exist yet.
	Types       []spec.ContainerType
	Broker      func(spec.ContainerType) (containerbroker.Broker, error)
	Initialiser func(spec.ContainerType) initialisers.Initialiser
	Sources     storageprovisioner.Sources
	Guard       *guard.Guard
	Workers     func(context.Context) []client.Worker
	Locks       func() []client.Lock
	Notices     func(context.Context) []string
	Started     time.Time
	Now         func() time.Time
}

// Report implements api.Host.
func (r Reporter) Report(ctx context.Context) (api.HostReport, error) {
	view := api.HostReport{
		Started: r.Started, Harvest: r.Config().Harvest, Workers: r.workers(ctx),
		Locks: r.Locks(), Disk: r.disk(ctx), Notices: r.Notices(ctx), Guard: r.guarded(),
	}
	seen, err := r.instances(ctx)
	if err != nil {
		view.Notices = append(view.Notices, err.Error())
	}
	view.Unknown, view.Moved = seen.unknown, seen.moved
	if view.UnknownStorage, err = r.unknownStorage(ctx); err != nil {
		view.Notices = append(view.Notices, err.Error())
	}
	return view, nil
}

func (r Reporter) workers(ctx context.Context) []client.Worker {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return r.Workers(ctx)
}

func (r Reporter) disk(ctx context.Context) []client.Disk {
	rows := []client.Disk{}
	for _, path := range []string{r.Paths.StateDir, r.Paths.RunDir} {
		var s unix.Statfs_t
		if unix.Statfs(path, &s) == nil {
			row := client.Disk{Path: path, Size: int64(s.Blocks) * s.Frsize, Used: int64(s.Blocks-s.Bfree) * s.Frsize, Free: int64(s.Bavail) * s.Frsize}
			if path == r.Paths.StateDir {
				row.Promised = r.Sources.Promised(ctx)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// undeclared are the instances with our namespace that no machine has.
type undeclared struct {
	unknown []client.UnknownInstance // the orphans
	moved   []client.MovedInstance
	another []string // with the stamp of another store, e.g. lxd/web
}

// instances lists the instances of all types that no machine has. On an error
// the lists hold the instances that were found before.
func (r Reporter) instances(ctx context.Context) (u undeclared, err error) {
	record, err := r.Host(ctx)
	if err != nil {
		return u, err
	}
	objects, _, err := r.Store.List(ctx, spec.KindMachine)
	if err != nil {
		return u, fmt.Errorf("cannot read the machines: %w", err)
	}
	for _, t := range r.Types {
		broker, err := r.Broker(t)
		if err != nil {
			continue // the type was never set up, so there are no instances
		}
		all, err := listSoon(ctx, broker)
		if err != nil {
			return u, err
		}
		owner := provisioner.Owner{Namespace: r.Config().Namespace, Lineage: record.Recovery.For(t)}
		unknown, moved := provisioner.Orphans(all, recordsOf(objects, t), owner, t)
		for _, i := range unknown {
			u.unknown = append(u.unknown, client.UnknownInstance{Type: string(t), Name: i.Name, UID: i.Stamp.UID})
		}
		for _, i := range moved {
			u.moved = append(u.moved, client.MovedInstance{Type: string(t), Name: i.Name, UID: i.Stamp.UID, MadeAs: string(provisioner.MadeAs(i, t))})
		}
		for _, i := range owner.OfAnother(all) {
			u.another = append(u.another, string(t)+"/"+i.Name)
		}
	}
	return u, nil
}

// recordsOf returns the uids of a type's machines, as the type's provisioner
// knows them. The machine of an unreadable record may be of any type.
func recordsOf(objects []state.Object, t spec.ContainerType) map[string]bool {
	records := make(map[string]bool, len(objects))
	for _, o := range objects {
		var record spec.MachineRecord
		if err := o.Decode(&record, nil); err != nil || record.Machine.Type == t || record.Migration.Open() {
			records[o.UID] = true
		}
	}
	return records
}

// reportTimeout is the time that a report waits for a hypervisor. It is short,
// because operators most often ask for the status when a part of the host
// hangs.
const reportTimeout = 3 * time.Second

func listSoon(ctx context.Context, broker containerbroker.Broker) ([]containerbroker.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return broker.List(ctx, false)
}

// guarded returns the guard's armed change for the status, or nil if there is
// none.
func (r Reporter) guarded() *client.Guarded {
	a, armed := r.Guard.Armed()
	if !armed {
		return nil
	}
	return &client.Guarded{
		Object: a.Object, Phase: string(a.Phase), Since: a.Since,
		Deadline: r.Now().Add(a.Left).UTC().Truncate(time.Second), Watched: a.Watched,
	}
}
