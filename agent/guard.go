package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"hostler/agent/client"
	"hostler/hostnet"
	"hostler/hostnet/guard"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/internal/units"
	"hostler/sysctl"
)

// newGuard returns the guard of the host's own network, with the netlink
// handle that it works on.
func (h *host) newGuard() (*guard.Guard, *hostnet.Host, error) {
	log := h.logger.With("part", "guard")
	links, err := hostnet.Open(hostnet.Options{Log: log})
	if err != nil {
		return nil, nil, err
	}
	o := guardOptions(h.paths, h.config().Namespace, links, log)
	o.Start, o.Probes = h.startWatchdog, h.probeAddresses
	o.Changed = h.guardChanged
	return guard.New(o), links, nil
}

// guardOptions returns the options that the agent and its watchdog share.
func guardOptions(p paths.Paths, namespace string, links *hostnet.Host, log *slog.Logger) guard.Options {
	return guard.Options{Dir: p.Guard(), Namespace: namespace, Host: links, Log: log, Sysctls: sysctl.New(p, log)}
}

// keepGuard is the worker that ends a change that an earlier agent left armed
// and watches over changes that wait for confirmation.
func (h *host) keepGuard(ctx context.Context) error {
	if err := h.guard.Recover(ctx); err != nil {
		return err
	}
	return h.guard.Keep(ctx)
}

// guardChanged wakes the networks worker.
func (h *host) guardChanged() {
	select {
	case h.guardEnds <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// probeAddresses returns the configured addresses that must stay reachable.
func (h *host) probeAddresses() []netip.Addr {
	var all []netip.Addr
	for _, text := range h.config().Guard.Probes {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// startWatchdog starts the process that outlives this one. Under systemd it is
// a separate unit, since systemd ends all processes of a unit that it stops.
func (h *host) startWatchdog(ctx context.Context) error {
	args := []string{"watchdog", "--config", h.paths.Config, "--state-dir", h.paths.StateDir, "--run-dir", h.paths.RunDir}
	if h.placement == Units {
		return units.StartTransient(ctx, "hostler-watchdog-"+newToken()[:8]+".service", "hostler: undoes a change of the host's network",
			append([]string{paths.Hostlerd}, args...))
	}
	// /proc/self/exe is the running program even if its file was replaced.
	_, err := run.Host{}.Run(ctx, run.Command{Path: "/proc/self/exe", Args: args, Detach: h.paths.WatchdogLog()})
	return err
}

// RunWatchdog runs the command `hostlerd watchdog`.
func RunWatchdog(ctx context.Context, o Options) error {
	links, err := hostnet.Open(hostnet.Options{Log: o.Logger})
	if err != nil {
		return err
	}
	defer links.Close()
	// The namespace is in the checkpoint.
	return guard.Watch(ctx, guardOptions(o.Paths, "", links, o.Logger))
}

// guards implements confirm and revert.
type guards struct{ *host }

// Confirm implements api.Guard.
func (g guards) Confirm(ctx context.Context) (string, error) { return g.guard.Confirm(ctx) }

// Revert implements api.Guard.
func (g guards) Revert(ctx context.Context) (string, error) { return g.guard.Revert(ctx) }

// Remember implements api.Guard.
func (g guards) Remember(client netip.Addr) { g.guard.Remember(client) }

// guarded returns the armed change for the status, or nil.
func (h *host) guarded() *client.Guarded {
	a, armed := h.guard.Armed()
	if !armed {
		return nil
	}
	return &client.Guarded{
		Object: a.Object, Phase: string(a.Phase), Since: a.Since,
		Deadline: h.now().Add(a.Left).UTC().Truncate(time.Second), Watched: a.Watched,
	}
}
