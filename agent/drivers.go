package agent

import (
	"log/slog"
	"os"
	"sync/atomic"

	"hostler/agent/spec"
	"hostler/agent/storageprovisioner"
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
	"hostler/packaging"
	"hostler/storage"
	"hostler/storage/idmap"
	"hostler/storage/loop"
	"hostler/storage/managedfs"
	"hostler/storage/rootfs"
	"hostler/storage/tmpfs"
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
}

// drivers returns the constructors of every container type that the agent can
// run.
func drivers() map[spec.ContainerType]constructors {
	return map[spec.ContainerType]constructors{
		spec.LXD: {socket: lxdSocket, driver: newLXDDriver, initialiser: newLXDInitialiser, remote: newRemoteLXD},
		spec.KVM: {socket: kvmSocket, driver: newKVMDriver, initialiser: newKVMInitialiser, remote: newRemoteKVM},
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

func newKVMInitialiser(h *host, c spec.Config) initialisers.Initialiser {
	return kvminit.New(kvminit.Options{
		Runner: run.Host{}, Trial: h.runner(units.Trial), Packages: h.packages(c), Paths: h.paths,
		Pool: c.Types.KVM.Pool, Accelerator: c.Types.KVM.Accelerator, Logger: h.logger.With("initialiser", "kvm"),
	})
}

// storageSources returns all providers of volumes and filesystems.
func (h *host) storageSources() storageprovisioner.Sources {
	p, ns, log := h.paths, h.config().Namespace, h.logger.With("part", "storage")
	managed := func(dir string) *managedfs.Source {
		o := managedfs.Options{Dir: dir, Namespace: ns, Runner: run.Host{}, Install: h.installFor, Log: log}
		if h.placement == Units {
			o.Grower = h.runner(units.Grow)
		}
		return managedfs.New(o)
	}
	return storageprovisioner.Sources{
		Volumes: map[string]storage.VolumeSource{
			"loop": loop.New(loop.Options{Dir: p.Volumes(), Namespace: ns, Log: log}),
		},
		Filesystems: map[string]storage.FilesystemSource{
			"tmpfs": tmpfs.New(tmpfs.Options{Dir: p.Filesystems("tmpfs"), Namespace: ns, Log: log}),
			"rootfs": rootfs.New(rootfs.Options{
				Dir: p.Mounts("rootfs"), Filesystems: managed(p.Rootfs("filesystems")), Log: log,
				Volumes: loop.New(loop.Options{Dir: p.Rootfs("volumes"), Namespace: ns, Log: log}),
			}),
			storageprovisioner.Managed: managed(p.Filesystems(storageprovisioner.Managed)),
		},
		Views:  idmap.New(idmap.Options{Dir: p.Mounts("machines"), Runner: h.runner(units.Users)}),
		Mounts: p.Mounts("host"), ViewDir: p.Mounts("machines"),
		// LXD runs as root and uses the ids that root may delegate.
		Map: func() (idmap.Map, error) { return idmap.Of(p.SubUIDs(), p.SubGIDs(), "root", lxdGuestIDs) },
	}
}

// lxdGuestIDs are the ids that LXD uses if /etc/subuid and /etc/subgid do not
// exist.
var lxdGuestIDs = idmap.Map{
	Users:  idmap.Range{First: 1_000_000, Count: 1_000_000_000},
	Groups: idmap.Range{First: 1_000_000, Count: 1_000_000_000},
}

// runner returns the Runner for a kind of work: under systemd each command is a
// unit, with privileges that the agent's own unit does not have.
func (h *host) runner(k units.Kind) run.Runner {
	if h.placement == Units {
		return units.New(k, h.logger.With("part", "units"))
	}
	return run.Host{}
}

func (h *host) packages(c spec.Config) packaging.Manager {
	return packaging.NewApt(h.paths, h.runner(units.Apt), c.Apt.Proxy, h.logger.With("part", "packages"))
}
