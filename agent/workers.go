package agent

import (
	"context"
	"time"

	"hostler/agent/logging"
	"hostler/agent/migrate"
	"hostler/agent/reconcile"
	"hostler/agent/recovery"
	"hostler/agent/services/metrics"
	"hostler/agent/spec"
)

// Worker describes a worker. The field In names the inputs, whose changes wake
// the worker. The field Out names the outputs.
type Worker struct {
	Name string
	In   string
	Out  string
	Doc  string
	// first is true if the workers after it wait for the first reading of conf.d.
	first bool
	// start is nil for a worker that another worker starts.
	start func(h *host, a applier) func(context.Context) error
}

// common returns the dependencies that all workers share, with the logger and
// the metrics of the worker of this name.
func (h *host) common(worker string) reconcile.Common {
	log := h.logger.With("worker", worker)
	passed := func() {
		h.sup.Passed(worker)
		h.memory.Busy()
	}
	return reconcile.Common{
		Store: logging.Events{Backend: h.store, Log: log}, Metrics: workerMetrics{metrics.Worker{Metrics: h.metrics, Name: worker}, passed}, Now: h.now, Logger: log, Notice: h.notice,
	}
}

// workerMetrics counts a worker's passes and operations, and calls passed for
// each pass.
type workerMetrics struct {
	reconcile.Metrics
	passed func()
}

// Pass implements reconcile.Metrics.
func (m workerMetrics) Pass(took time.Duration, err error) {
	m.passed()
	m.Metrics.Pass(took, err)
}

// Workers lists every worker of the agent. The table in docs/ARCHITECTURE.md is
// generated from this list.
func Workers() []Worker {
	all := []Worker{
		{
			Name: "configuration", In: "hostler.yaml", Out: "host record",
			Doc:   "Applies changes of the host's configuration while the agent runs.",
			start: func(h *host, _ applier) func(context.Context) error { return h.configuration.Run },
		},
		{
			Name: "runtime", In: "the runtime directory", Out: "that directory, the API's socket, how guests run here",
			Doc:   "Restores removed parts of the runtime directory while the agent runs.",
			start: func(h *host, _ applier) func(context.Context) error { return h.keepRuntime },
		},
		{
			Name: "declarations", In: "conf.d/*.yaml", Out: "declarations and machines", first: true,
			Doc: "Keeps the store in step with the declaration files.",
			start: func(h *host, a applier) func(context.Context) error {
				return func(ctx context.Context) error { return h.declarations.Run(ctx, a) }
			},
		},
		{
			Name: "remake", In: "machines, networks, volumes, filesystems", Out: "machines, networks, volumes, filesystems",
			Doc:   "Creates an object again that was declared again during its removal, after the removal.",
			start: func(h *host, a applier) func(context.Context) error { return h.redeclare(a) },
		},
		{
			Name: "migrate", In: "machines, type/*, host record", Out: "machines, LXD and Incus instances",
			Doc: "Moves machines from LXD to Incus with their data, one at a time, as asked by `hostler migrate`.",
			start: func(h *host, a applier) func(context.Context) error {
				return migrate.New(h.common("migrate"), h.hypervisors(), a.SetMigration).Run
			},
		},
		{
			Name: "networks", In: "networks, machines, host record, the kernel's network events",
			Out:   "bridges, the firewall's table, kernel parameters, DHCP servers, network statuses",
			Doc:   "Keeps the host's networks as declared and gives machines their addresses.",
			start: func(h *host, _ applier) func(context.Context) error { return h.keepNetworks },
		},
		{
			Name: "storage", In: "volumes, filesystems, machines, host record, block devices", Out: "loop devices, filesystems, mounts, and the status of volumes and filesystems",
			Doc:   "Keeps volumes, filesystems and their attachments to machines as declared.",
			start: func(h *host, _ applier) func(context.Context) error { return h.storage.Run },
		},
		{
			Name: "guard", In: "the checkpoint of a change of the host's own network", Out: "links, addresses and routes of the host's NICs, as they were",
			Doc:   "Reverts a change of the host's own network that an earlier agent left unfinished or that is not confirmed in time, and keeps the watchdog alive that reverts without the agent.",
			start: func(h *host, _ applier) func(context.Context) error { return h.keepGuard },
		},
	}
	constructors := drivers()
	for _, info := range spec.ContainerTypes() {
		c, runs := constructors[info.Type]
		if !runs {
			continue
		}
		name := string(info.Type)
		all = append(all, Worker{
			Name: "recovery-" + name, In: "host record", Out: "machines and declarations that the store lost, host record",
			Doc: "Compares the " + info.Hypervisor + " instances with the store when the agent starts, and restores lost records from their stamps.",
			start: func(h *host, _ applier) func(context.Context) error {
				return h.recovery.Run(info.Type, recovery.Lateness)
			},
		}, Worker{
			Name: "setup-" + name, In: "machines, host record", Out: "type/" + name + ", " + c.setup.Out, Doc: c.setup.Doc,
			start: func(h *host, _ applier) func(context.Context) error { return h.setUp(info.Type) },
		}, Worker{
			Name: "provisioner-" + name, In: "machines, host record, " + c.provisioner.In, Out: c.provisioner.Out + " and the status of their machines",
			Doc: "Keeps the " + info.Hypervisor + " machines as declared. Under systemd it is a unit of its own.",
		})
	}
	return all
}
