package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/kvm"
	"hostler/containerbroker/lxc"
	"hostler/containerbroker/lxd"
	"hostler/initialisers"
	kvminit "hostler/initialisers/kvm"
	lxcinit "hostler/initialisers/lxc"
	lxdinit "hostler/initialisers/lxd"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/internal/units"
	"hostler/storage/idmap"
	"hostler/sysctl"
)

// constructors holds the functions that create the parts of a container type.
type constructors struct {
	// socket returns the hypervisor's socket, or a file in its folder if it has
	// no daemon. It returns "" if there is none.
	socket func(p paths.Paths, c spec.TypesConfig) string
	// folder returns the folder of the hypervisor that has the instances, or "" if
	// there is none. back says how to make the hypervisor use a former folder. Both
	// are nil if the folder cannot change.
	folder func(p paths.Paths, c spec.TypesConfig) string
	back   func(p paths.Paths, former string) string
	// driver fails with fault.NotReady until the hypervisor exists.
	driver      func(h *host) (driver, error)
	initialiser func(h *host, c spec.Config) initialisers.Initialiser
	// remote creates the broker for a provisioner in a separate process. That
	// provisioner leaves images to the agent.
	remote func(p paths.Paths, c spec.Config, log *slog.Logger) (containerbroker.Broker, error)
	// step is the program of the steps that a provisioner without the rights for
	// them has another process take. It is nil if the type has none.
	step func(ctx context.Context, in io.Reader, out io.Writer) error
	// renewer returns a function that restores removed files of the type in the
	// runtime directory. It is nil if the type has none.
	renewer func(p paths.Paths) (renew func() error)
	// copier returns a driver that moves instances to another type's driver. It is
	// nil if the type has none.
	copier func(h *host) (*lxd.Driver, error)
	// rootDiskNotice is the key of the initialiser's notice that root disks have
	// no size limit. It is empty for a type whose root disks always have a
	// limit.
	rootDiskNotice string
	// setup and provisioner describe the type's two workers.
	setup, provisioner Worker
}

// folderIn returns the folder of the hypervisor that has the instances, or "".
func (c constructors) folderIn(p paths.Paths, types spec.TypesConfig) string {
	if c.folder == nil {
		return ""
	}
	return c.folder(p, types)
}

// drivers returns the constructors of every container type that the agent can
// run. spec.ContainerTypes lists the types' other differences.
func drivers() map[spec.ContainerType]constructors {
	return map[spec.ContainerType]constructors{
		spec.LXD:   lxdDaemon{lxd.LXD, lxdinit.LXD, func(c spec.TypesConfig) spec.LXDConfig { return c.LXD }}.constructors(),
		spec.Incus: lxdDaemon{lxd.Incus, lxdinit.Incus, func(c spec.TypesConfig) spec.LXDConfig { return c.Incus }}.constructors(),
		spec.KVM: {
			socket: func(p paths.Paths, _ spec.TypesConfig) string { return kvmSocket(p) }, driver: newKVMDriver, initialiser: newKVMInitialiser, remote: newRemoteKVM,
			renewer: accelerationRenewer,
			setup: Worker{
				Out: "packages, libvirt's storage pool and network, how guests run here",
				Doc: "Prepares the host for KVM machines when the first is declared, then starts their provisioner.",
			},
			provisioner: Worker{In: "libvirt's events", Out: "libvirt domains"},
		},
		spec.LXC: {
			socket: lxcFolder,
			folder: func(p paths.Paths, c spec.TypesConfig) string { return p.Host(c.LXC.Path) },
			back: func(p paths.Paths, former string) string {
				return fmt.Sprintf("set `types: {lxc: {path: %s}}` in %s and restart hostlerd", former, p.Config)
			},
			driver: newLXCDriver, initialiser: newLXCInitialiser, remote: newRemoteLXC, step: lxc.ServeStep,
			rootDiskNotice: lxcinit.RootDiskNotice,
			setup: Worker{
				Out: "packages, LXC's bridge, the pool of root filesystems, ids of guests, kernel limits",
				Doc: "Prepares the host for LXC machines when the first is declared, removes what a power cut left of unfinished machines (again after a failed operation), then starts their provisioner.",
			},
			provisioner: Worker{In: "the containers' monitors and folders", Out: "LXC containers"},
		},
	}
}

// lxdDaemon is a daemon that speaks LXD's API: LXD or Incus.
type lxdDaemon struct {
	driver      lxd.Dialect
	initialiser lxdinit.Dialect
	config      func(spec.TypesConfig) spec.LXDConfig
}

func (l lxdDaemon) constructors() constructors {
	name := l.driver.Name
	return constructors{
		socket: func(p paths.Paths, _ spec.TypesConfig) string { return l.socket(p) }, driver: l.newDriver, initialiser: l.newInitialiser,
		folder: func(p paths.Paths, _ spec.TypesConfig) string {
			if socket := l.socket(p); socket != "" {
				return filepath.Dir(socket)
			}
			return ""
		},
		back: func(_ paths.Paths, former string) string { return "start the " + name + " of " + former + " again" },
		remote: func(p paths.Paths, c spec.Config, log *slog.Logger) (containerbroker.Broker, error) {
			return l.at(p, c.Namespace, lxd.Options{Logger: log})
		},
		copier: func(h *host) (*lxd.Driver, error) {
			return l.at(h.paths, h.config().Namespace, lxd.Options{OperationTimeout: transferTimeout, Logger: h.logger.With("part", "migrate")})
		},
		rootDiskNotice: l.initialiser.RootDiskNotice(),
		setup: Worker{
			Out: "packages, " + name + "'s first configuration, kernel limits, the directory for files set aside in " + name + "'s pools",
			Doc: "Prepares the host for " + name + " machines when the first is declared, sets aside files that a power cut left in their way (again after a failed operation), then starts their provisioner.",
		},
		provisioner: Worker{In: name + "'s events", Out: name + " instances"},
	}
}

func (l lxdDaemon) socket(p paths.Paths) string {
	return l.initialiser.FindSocket(p, os.Getenv(l.initialiser.Variable))
}

func (l lxdDaemon) newDriver(h *host) (driver, error) {
	d, err := l.at(h.paths, h.cfg.Namespace, lxd.Options{Images: h.images, Logger: h.logger.With("driver", l.driver.Type)})
	if err != nil {
		return driver{}, err
	}
	return driver{Broker: d, Images: d}, nil
}

// at returns a driver for the daemon of this host.
func (l lxdDaemon) at(p paths.Paths, namespace string, o lxd.Options) (*lxd.Driver, error) {
	o.Dialect, o.Socket, o.Namespace, o.Profile = l.driver, l.socket(p), namespace, lxdinit.Profile
	if o.Socket == "" {
		return nil, fault.New(fault.NotReady, "%s is not set up on this host yet", l.driver.Name)
	}
	if filepath.Dir(o.Socket) == p.Host(paths.SnapLXDDir) {
		o.Dialect.Unit = paths.SnapLXDUnit
	}
	return lxd.New(o), nil
}

func (l lxdDaemon) newInitialiser(h *host, c spec.Config) initialisers.Initialiser {
	log, own := h.logger.With("initialiser", l.driver.Type), l.config(c.Types)
	return lxdinit.New(lxdinit.Options{
		Dialect: l.initialiser,
		Runner:  run.Host{}, Packages: h.packages(c), Sysctl: sysctl.New(h.paths, log), Paths: h.paths,
		Pool: own.Pool, MTU: own.MTU, NetworkMethod: own.NetworkMethod,
		Dir: os.Getenv(l.initialiser.Variable), Notice: h.notice, Logger: log,
	})
}

// recordedIDs returns the ids on record of a container of LXD, or "".
func (h *host) recordedIDs(ctx context.Context) (string, error) {
	d, err := h.driver(spec.LXD)
	if err != nil {
		return "", err
	}
	recorder, ok := d.Broker.(interface {
		GuestIDs(ctx context.Context) (string, error)
	})
	if !ok {
		return "", nil
	}
	return recorder.GuestIDs(ctx)
}

// ignoresIDs reports whether a type's daemon ignores the ids that root has permission
// to delegate, as the LXD of the snap does, see
// https://documentation.ubuntu.com/lxd/latest/userns-idmap.
func ignoresIDs(p paths.Paths, t spec.ContainerType) bool {
	return t == spec.LXD && filepath.Dir(p.FindLXDSocket(os.Getenv("LXD_DIR"))) == p.Host(paths.SnapLXDDir)
}

func kvmSocket(p paths.Paths) string {
	if _, err := os.Stat(p.LibvirtSocket()); err != nil {
		return ""
	}
	return p.LibvirtSocket()
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

func newRemoteKVM(p paths.Paths, c spec.Config, log *slog.Logger) (containerbroker.Broker, error) {
	return kvmAt(p, c.Namespace, kvm.Options{Logger: log})
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
// guests. This is the last one that the initialiser recorded, or TCG if it has
// recorded none, since TCG runs everywhere.
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

// accelerationRenewer returns a function that restores the initialiser's record
// of the accelerator if the record is missing. A provisioner's unit reads the
// record.
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

// lxcFolder returns a path in the agent's part of liblxc's folder of instances,
// or "" until that exists.
func lxcFolder(p paths.Paths, c spec.TypesConfig) string {
	if _, err := os.Stat(p.Host(c.LXC.Path)); err != nil {
		return ""
	}
	return filepath.Join(p.Host(c.LXC.Path), "instances")
}

func newLXCDriver(h *host) (driver, error) {
	o, err := lxcAt(h.paths, h.cfg, h.logger.With("driver", "lxc"))
	if err != nil {
		return driver{}, err
	}
	o.Images = h.images
	if !h.limited() {
		d := lxc.New(o)
		return driver{Broker: d, Images: d}, nil
	}
	d := confinedLXC(o)
	return driver{Broker: d, Images: d}, nil
}

func newRemoteLXC(p paths.Paths, c spec.Config, log *slog.Logger) (containerbroker.Broker, error) {
	o, err := lxcAt(p, c, log)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(p.SystemdRunning()); err != nil { // then nothing confines this process
		return lxc.New(o), nil
	}
	return confinedLXC(o), nil
}

// confinedLXC returns a driver for a process that has only a unit's rights.
func confinedLXC(o lxc.Options) *lxc.Confined {
	full := units.New(units.Guests, o.Logger)
	o.Host, o.Runner = full, full
	return lxc.NewConfined(o, full, run.Command{Path: paths.Hostlerd, Args: []string{"internal", "step", "lxc"}})
}

// lxcAt returns the options of a driver for the LXC of this host.
func lxcAt(p paths.Paths, c spec.Config, log *slog.Logger) (lxc.Options, error) {
	ids, err := lxcIDs(p)
	if err == nil {
		_, err = os.Stat(filepath.Join(p.Host(c.Types.LXC.Path), "."+c.Namespace, "pool"))
	}
	if err != nil {
		return lxc.Options{}, fault.New(fault.NotReady, "LXC is not set up on this host yet: %w", err)
	}
	return lxc.Options{
		Path: p.Host(c.Types.LXC.Path), Namespace: c.Namespace, Bridge: lxcBridge(c.Types), MTU: c.Types.LXC.MTU, KeepRemoved: c.Types.LXC.KeepRemoved.Std(),
		IDs: ids, Logger: log,
	}, nil
}

// lxcBridge returns the bridge of LXC's machines without declared networks, or ""
// if they have none.
func lxcBridge(c spec.TypesConfig) string {
	if c.LXC.NetworkMethod == "provider" {
		return ""
	}
	return lxcinit.Bridge
}

// lxcIDs returns the ids of LXC's unprivileged guests.
func lxcIDs(p paths.Paths) (lxc.IDs, error) {
	ids, err := idmap.Of(p.SubUIDs(), p.SubGIDs(), "root", idmap.Map{})
	if err == nil && (ids.Users.Count == 0 || ids.Groups.Count == 0) {
		err = fault.New(fault.NotReady, "root has no range of ids for guests")
	}
	return lxc.IDs{FirstUser: ids.Users.First, FirstGroup: ids.Groups.First, Count: min(ids.Users.Count, ids.Groups.Count)}, err
}

func newLXCInitialiser(h *host, c spec.Config) initialisers.Initialiser {
	log := h.logger.With("initialiser", "lxc")
	return lxcinit.New(lxcinit.Options{
		Runner: run.Host{}, Full: h.runner(units.Guests), Packages: h.packages(c), Sysctl: sysctl.New(h.paths, log), Paths: h.paths,
		Path: c.Types.LXC.Path, Namespace: c.Namespace, PoolSize: int64(c.Types.LXC.PoolSize), NoBridge: lxcBridge(c.Types) == "", Notice: h.notice, Logger: log,
		IDs: func() (user, group uint32, err error) {
			ids, err := lxcIDs(h.paths)
			return ids.FirstUser, ids.FirstGroup, err
		},
	})
}
