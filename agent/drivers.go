package agent

import (
	"log/slog"
	"os"
	"sync/atomic"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/kvm"
	"hostler/containerbroker/lxd"
	"hostler/initialisers"
	kvminit "hostler/initialisers/kvm"
	lxdinit "hostler/initialisers/lxd"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/internal/units"
	"hostler/sysctl"
)

// constructors holds the functions that create the parts of a container type.
type constructors struct {
	// socket returns the hypervisor's socket, or "" if there is none.
	socket func(p paths.Paths) string
	// driver fails with fault.NotReady until the hypervisor exists.
	driver      func(h *host) (driver, error)
	initialiser func(h *host, c spec.Config) initialisers.Initialiser
	// remote creates the broker for a provisioner in a separate process, which
	// leaves images to the agent.
	remote func(p paths.Paths, namespace string, log *slog.Logger) (containerbroker.Broker, error)
	// renewer, which may be nil, returns a function that restores the type's
	// removed files of the runtime directory.
	renewer func(p paths.Paths) (renew func() error)
	// rootDiskNotice is the key of the initialiser's notice that root disks have
	// no size limit; empty: they always have.
	rootDiskNotice string
	// setup and provisioner describe the type's two workers.
	setup, provisioner Worker
}

// drivers returns the constructors of every container type that the agent can
// run. The types' other differences stand in spec.ContainerTypes.
func drivers() map[spec.ContainerType]constructors {
	return map[spec.ContainerType]constructors{
		spec.LXD: {
			socket: lxdSocket, driver: newLXDDriver, initialiser: newLXDInitialiser, remote: newRemoteLXD,
			rootDiskNotice: lxdinit.RootDiskNotice,
			setup: Worker{
				Out: "packages, LXD's first configuration, kernel limits, the directory for files set aside in LXD's pools",
				Doc: "Prepares the host for LXD machines when the first is declared, sets aside files that a power cut left in their way (again after a failed operation), then starts their provisioner.",
			},
			provisioner: Worker{In: "LXD's events", Out: "LXD instances"},
		},
		spec.KVM: {
			socket: kvmSocket, driver: newKVMDriver, initialiser: newKVMInitialiser, remote: newRemoteKVM,
			renewer: accelerationRenewer,
			setup: Worker{
				Out: "packages, libvirt's storage pool and network, how guests run here",
				Doc: "Prepares the host for KVM machines when the first is declared, then starts their provisioner.",
			},
			provisioner: Worker{In: "libvirt's events", Out: "libvirt domains"},
		},
	}
}

func lxdSocket(p paths.Paths) string { return p.FindLXDSocket(os.Getenv("LXD_DIR")) }

func kvmSocket(p paths.Paths) string {
	if _, err := os.Stat(p.LibvirtSocket()); err != nil {
		return ""
	}
	return p.LibvirtSocket()
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
	o.Socket, o.Namespace, o.Profile = lxdSocket(p), namespace, lxdinit.Profile
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
		LXDDir: os.Getenv("LXD_DIR"), Notice: h.notice, Logger: log,
	})
}

func newKVMDriver(h *host) (driver, error) {
	d, err := kvmAt(h.paths, h.cfg.Namespace, kvm.Options{
		Images: h.images, Runner: h.runner(units.Image), Pool: h.cfg.Types.KVM.Pool, Logger: h.logger.With("driver", "kvm"),
	})
	if err != nil {
		return driver{}, err
	}
	return driver{Broker: d, Images: d}, nil
}

func newRemoteKVM(p paths.Paths, namespace string, log *slog.Logger) (containerbroker.Broker, error) {
	return kvmAt(p, namespace, kvm.Options{Logger: log})
}

// kvmAt returns a driver for the libvirt of this host.
func kvmAt(p paths.Paths, namespace string, o kvm.Options) (*kvm.Driver, error) {
	o.Socket, o.Namespace = kvmSocket(p), namespace
	o.Accelerator = accelerator(p)
	if o.Socket == "" {
		return nil, fault.New(fault.NotReady, "libvirt is not set up on this host yet")
	}
	return kvm.New(o), nil
}

// accelerator returns a function that returns the accelerator of this host's
// guests: the last one recorded by the initialiser, or TCG, which runs
// everywhere, before that.
func accelerator(p paths.Paths) func() string {
	var known atomic.Pointer[string]
	known.Store(new(string(kvm.AcceleratorTCG)))
	return func() string {
		if outcome, err := kvminit.ReadOutcome(p); err == nil {
			known.Store(&outcome.Accelerator)
		}
		return *known.Load()
	}
}

// accelerationRenewer keeps the initialiser's record of how guests run, which a
// provisioner's unit reads.
func accelerationRenewer(p paths.Paths) func() error {
	var proven kvminit.Outcome
	return func() error {
		if found, err := kvminit.ReadOutcome(p); err == nil {
			proven = found
		} else if proven.Accelerator != "" {
			return proven.Write(p)
		}
		return nil
	}
}

func newKVMInitialiser(h *host, c spec.Config) initialisers.Initialiser {
	return kvminit.New(kvminit.Options{
		Runner: run.Host{}, Trial: h.runner(units.Trial), Packages: h.packages(c), Paths: h.paths,
		Pool: c.Types.KVM.Pool, Accelerator: c.Types.KVM.Accelerator, Logger: h.logger.With("initialiser", "kvm"),
	})
}
