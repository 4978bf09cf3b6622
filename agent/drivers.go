package agent

import (
	"log/slog"
	"os"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/lxd"
	"hostler/initialisers"
	lxdinit "hostler/initialisers/lxd"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/packaging"
	"hostler/sysctl"
)

// constructors make what one container type needs.
type constructors struct {
	// driver is fault.NotReady until the hypervisor is there.
	driver      func(h *host) (driver, error)
	initialiser func(h *host, c spec.Config) initialisers.Initialiser
	// remote makes the broker for a provisioner in a process of its own, which
	// leaves images to the agent.
	remote func(p paths.Paths, namespace string, log *slog.Logger) (containerbroker.Broker, error)
}

// drivers names the drivers of every container type this agent can run.
func drivers() map[spec.ContainerType]constructors {
	return map[spec.ContainerType]constructors{
		spec.LXD: {driver: newLXDDriver, initialiser: newLXDInitialiser, remote: newRemoteLXD},
	}
}

func newLXDDriver(h *host) (driver, error) {
	d, err := lxdAt(h.paths, h.cfg.Namespace, lxd.Options{Images: h.images, Logger: h.logger.With("driver", "lxd")})
	if err != nil {
		return driver{}, err
	}
	return driver{Broker: d, Images: d}, nil
}

func newRemoteLXD(p paths.Paths, namespace string, log *slog.Logger) (containerbroker.Broker, error) {
	return lxdAt(p, namespace, lxd.Options{Logger: log})
}

// lxdAt returns a driver for the LXD of this host.
func lxdAt(p paths.Paths, namespace string, o lxd.Options) (*lxd.Driver, error) {
	o.Socket, o.Namespace = p.FindLXDSocket(os.Getenv("LXD_DIR")), namespace
	if o.Socket == "" {
		return nil, fault.New(fault.NotReady, "LXD is not set up on this host yet")
	}
	return lxd.New(o), nil
}

func newLXDInitialiser(h *host, c spec.Config) initialisers.Initialiser {
	log := h.logger.With("initialiser", "lxd")
	return lxdinit.New(lxdinit.Options{
		Runner: run.Host{}, Packages: h.packages(c), Sysctl: sysctl.New(h.paths, log), Paths: h.paths,
		Pool: c.Types.LXD.Pool, MTU: c.Types.LXD.MTU, NetworkMethod: c.Types.LXD.NetworkMethod,
		Proxy:  lxdinit.Proxy{HTTP: c.Proxy.HTTP, HTTPS: c.Proxy.HTTPS, No: c.Proxy.No},
		LXDDir: os.Getenv("LXD_DIR"), Logger: log,
	})
}

func (h *host) packages(c spec.Config) packaging.Manager {
	return packaging.NewApt(h.paths, run.Host{}, c.Apt.Proxy, h.logger.With("part", "packages"))
}
