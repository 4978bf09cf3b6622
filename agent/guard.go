package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"hostler/hostnet"
	"hostler/hostnet/guard"
	"hostler/hostnet/persist"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/internal/units"
	"hostler/sysctl"
)

// newGuard returns the guard of the host's own network and the netlink handle
// that the guard uses. The caller closes the handle.
func (h *host) newGuard() (*guard.Guard, *hostnet.Host, error) {
	log := h.logger.With("part", "guard")
	links, err := hostnet.Open(hostnet.Options{Log: log})
	if err != nil {
		return nil, nil, err
	}
	o := guardOptions(h.paths, h.config().Namespace, links, log)
	o.Start, o.Probes = h.startWatchdog, h.probeAddresses
	return guard.New(o), links, nil
}

// guardOptions returns the options that the agent and its watchdog share.
func guardOptions(p paths.Paths, namespace string, links *hostnet.Host, log *slog.Logger) guard.Options {
	return guard.Options{Dir: p.Guard(), Namespace: namespace, Host: links, Log: log, Sysctls: sysctl.New(p, log)}
}

// keepGuard is the worker that watches over changes of the host's network that
// wait for confirmation. First it ends a change that an earlier agent left
// unfinished.
func (h *host) keepGuard(ctx context.Context) error {
	if err := h.guard.Recover(ctx); err != nil {
		return err
	}
	return h.guard.Keep(ctx)
}

// probeAddresses returns the addresses that must stay reachable according to
// the configuration.
func (h *host) probeAddresses() []netip.Addr {
	var all []netip.Addr
	for _, text := range h.config().Guard.Probes {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// startWatchdog starts the watchdog, a process that outlives the agent. Under
// systemd the watchdog is a separate unit, since systemd ends all processes of
// a unit that it stops.
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
	// The options need no namespace, because the checkpoint contains it.
	shared := guardOptions(o.Paths, "", links, o.Logger)
	reverted, err := guard.Watch(ctx, shared)
	if err == nil && reverted {
		resumeClients(ctx, o, links, guard.New(shared))
	}
	return err
}

// resumeClients tries some times, after a pause each, to start the DHCP clients that a
// reverted change had ended. A living agent does it at once, but it may be gone.
func resumeClients(ctx context.Context, o Options, links *hostnet.Host, g *guard.Guard) {
	const tries, pause = 5, 2 * time.Second
	h := &host{paths: o.Paths, logger: o.Logger}
	clients := persist.Keeper{Paths: h.paths, Dhclient: h.runner(units.DHClient), Dhcpcd: h.runner(units.DHCPCD)}
	for range tries {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		left := true
		now, err := links.Observe(ctx)
		if _, armed := g.Armed(); armed {
			return // that change ended them
		}
		if err == nil {
			left, err = clients.Resume(ctx, func(link string) bool {
				_, armed := g.Armed() // meanwhile
				return !armed && now.Free(link)
			})
		}
		if !left {
			return
		}
		o.Logger.Warn("A DHCP client is not started again yet.", "error", err)
	}
}
