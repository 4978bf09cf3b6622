package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler/agent/api"
	"hostler/agent/client"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/initialisers"
)

// hostReporter answers the API's requests about the whole host.
type hostReporter struct{ *host }

// lowSpace is the free space below which doctor warns, in bytes. It suffices to
// build an image and to copy a store.
const lowSpace = 2 << 30

// Report implements api.Host.
func (g hostReporter) Report(ctx context.Context) (api.HostReport, error) {
	view := api.HostReport{
		Started: g.started, Harvest: g.config().Harvest, Workers: g.workers(ctx),
		Locks: g.locks(), Disk: g.disk(), Notices: g.allNotices(ctx), Guard: g.guarded(),
	}
	unknown, _, err := g.unknown(ctx)
	if err != nil {
		view.Notices = append(view.Notices, err.Error())
	}
	view.Unknown = unknown
	if view.UnknownStorage, err = g.unknownStorage(ctx); err != nil {
		view.Notices = append(view.Notices, err.Error())
	}
	return view, nil
}

// workers lists the workers of this process and of separate processes.
func (g hostReporter) workers(ctx context.Context) []client.Worker {
	rows := g.sup.List()
	if g.placement == Inside {
		return rows
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	for _, t := range g.types() {
		name := "provisioner-" + string(t)
		row := client.Worker{Name: name, State: "elsewhere", Message: "a process of its own", Since: g.started}
		if g.placement == Units {
			if unit, err := provisionerUnit(t).Row(ctx); err != nil {
				row.Message = err.Error()
			} else {
				row.State, row.Message = unit.State, unit.Message
				if !unit.Since.IsZero() {
					row.Since = unit.Since
				}
			}
		}
		g.mu.Lock()
		row.Passes = g.passes[name]
		g.mu.Unlock()
		rows = append(rows, row)
	}
	return rows
}

func (g hostReporter) disk() []client.Disk {
	rows := []client.Disk{}
	for _, path := range []string{g.paths.StateDir, g.paths.RunDir} {
		var s unix.Statfs_t
		if unix.Statfs(path, &s) == nil {
			row := client.Disk{Path: path, Size: int64(s.Blocks) * s.Frsize, Used: int64(s.Blocks-s.Bfree) * s.Frsize, Free: int64(s.Bavail) * s.Frsize}
			if path == g.paths.StateDir {
				row.Promised = g.promised()
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// texts returns the notices of this process.
func (g hostReporter) texts() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Values(g.notices))
}

func (g hostReporter) allNotices(ctx context.Context) []string {
	texts := g.texts()
	if status, err := g.hostStatus(ctx); err == nil {
		texts = append(texts, status.Notices...)
	}
	return texts
}

// unknown lists the orphans and the names of the instances with our namespace
// and another store's stamp.
func (g hostReporter) unknown(ctx context.Context) (rows []client.UnknownInstance, another []string, err error) {
	rows = []client.UnknownInstance{}
	record, err := g.hostRecord(ctx)
	if err != nil {
		return rows, nil, err
	}
	objects, _, err := g.store.List(ctx, spec.KindMachine)
	if err != nil {
		return rows, nil, fmt.Errorf("cannot read the machines: %w", err)
	}
	records := make(map[string]bool, len(objects))
	for _, o := range objects {
		records[o.UID] = true
	}
	for _, t := range g.types() {
		d, err := g.driver(t)
		if err != nil {
			continue // the type was never set up, so there are no instances
		}
		all, err := listSoon(ctx, d.Broker)
		if err != nil {
			return rows, nil, err
		}
		owner := provisioner.Owner{Namespace: g.config().Namespace, Lineage: record.Lineage.For(t)}
		for _, i := range provisioner.Unknown(all, records, owner) {
			rows = append(rows, client.UnknownInstance{Type: string(t), Name: i.Name, UID: i.Stamp.UID})
		}
		for _, i := range owner.OfAnother(all) {
			another = append(another, string(t)+"/"+i.Name)
		}
	}
	return rows, another, nil
}

// reportTimeout is how long a report waits for a hypervisor. It is short,
// because operators ask for the status most when something hangs.
const reportTimeout = 3 * time.Second

func listSoon(ctx context.Context, broker containerbroker.Broker) ([]containerbroker.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return broker.List(ctx, false)
}

// readiness returns the check whether the host can run machines of a type,
// within glanceTimeout.
func readiness(ctx context.Context, t spec.ContainerType, init initialisers.Initialiser) (result, message, mend string) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if ok, why := init.Supported(ctx); !ok {
		return "error", "this host cannot run " + string(t) + " machines: " + why, "fix the named cause, then run `hostler doctor` again"
	}
	ok, why := init.Satisfied(ctx)
	switch {
	case ok:
		message = "is set up"
		if d, describes := init.(initialisers.Describer); describes {
			how, mend := d.Guests()
			if how != "" {
				message += "; " + how
			}
			if mend != "" {
				return "warning", message, mend
			}
		}
		return "ok", message, ""
	case ctx.Err() != nil:
		return "error", fmt.Sprintf("no answer within %s: %s", reportTimeout, why), "look whether its daemon hangs, and restart it"
	case strings.Contains(why, initialisers.NotAnswering):
		message, mend, _ = strings.Cut(why, "; ")
		return "error", message, mend
	default:
		return "ok", "not installed yet; will be set up with the first " + string(t) + " machine (" + why + ")", ""
	}
}

// Doctor implements api.Host. It changes nothing and calls no package manager.
func (g hostReporter) Doctor(ctx context.Context) ([]client.Check, error) {
	var checks []client.Check
	add := func(name, result, message, mend string) {
		checks = append(checks, client.Check{Name: name, Result: result, Message: message, Mend: mend})
	}
	for _, t := range g.types() {
		name := "type " + string(t)
		result, message, mend := readiness(ctx, t, g.initialiser(t))
		add(name, result, message, mend)
	}
	for _, d := range g.disk() {
		name := "space " + d.Path
		if d.Path == g.paths.StateDir && d.Free < lowSpace {
			add(name, "warning", fmt.Sprintf("%d MiB are free", d.Free>>20), "free space: images and the store are kept here")
			continue
		}
		add(name, "ok", fmt.Sprintf("%d MiB are free", d.Free>>20), "")
	}
	checks = append(checks, g.networkChecks(ctx)...)
	unknown, another, err := g.unknown(ctx)
	if err != nil {
		message, mend := err.Error(), "look whether the hypervisor's daemon runs"
		if short := containerbroker.Unanswered(err); short != "" {
			message, mend, _ = strings.Cut(message, "; ")
		}
		add("instances", "error", message, mend)
	} else if len(unknown) > 0 {
		names := make([]string, len(unknown))
		for i, u := range unknown {
			names[i] = u.Type + "/" + u.Name
		}
		add("unknown instances", "warning", strings.Join(names, ", ")+" have this agent's stamp and no declaration",
			"take over an instance with `hostler adopt`, or delete all with `hostler harvest unknown`")
	}
	if len(another) > 0 {
		add("instances of another store", "warning", strings.Join(another, ", ")+" have this agent's namespace and the stamp of another store",
			"give the two agents a namespace each; where there is no other agent, take them over with `hostler adopt`")
	}
	for _, text := range g.allNotices(ctx) {
		if strings.HasPrefix(text, spec.KindNetwork+"/") {
			continue // networkChecks reports these
		}
		add("notice", "warning", text, "see `hostler status`")
	}
	return checks, nil
}
