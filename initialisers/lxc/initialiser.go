// Package lxc prepares a host for classic LXC, i.e. containers of liblxc
// without a daemon. It installs packages, makes the bridge of machines without
// declared networks and a pool of root filesystems, and raises kernel limits.
package lxc

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"hostler/initialisers"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/packaging"
)

// Bridge is the bridge that the package lxc makes.
const Bridge = "lxcbr0"

// Options configures the initialiser.
type Options struct {
	Runner run.Runner
	// Full runs the programs that need all of root's rights.
	Full     run.Runner
	Packages packaging.Manager
	Sysctl   initialisers.Limits
	Paths    paths.Paths
	// Path is liblxc's folder of instances. Namespace is the agent's namespace.
	Path, Namespace string
	// IDs returns the first user id and group id of unprivileged guests, or an
	// error if root has no range of ids for them.
	IDs func() (user, group uint32, err error)
	// PoolSize is the size in bytes of a new pool; 0 means half of the free
	// space, within bounds.
	PoolSize int64
	// NoBridge says that machines use only bridges made outside hostler. Then the
	// package makes no bridge.
	NoBridge bool
	// Notice shows a text in the host's status under a key. An empty text
	// removes the notice. The function may be nil.
	Notice func(key, text string)
	Logger *slog.Logger
}

// Initialiser prepares the host for LXC containers.
type Initialiser struct {
	opts Options
	log  *slog.Logger
	// mounted is poolMounted. Tests replace it.
	mounted func() bool
}

var _ initialisers.Initialiser = (*Initialiser)(nil)

// New returns an initialiser without doing anything on the host.
func New(opts Options) *Initialiser {
	if opts.Notice == nil {
		opts.Notice = func(string, string) {}
	}
	i := &Initialiser{opts: opts, log: opts.Logger}
	i.mounted = i.poolMounted
	return i
}

// packages are LXC's packages. Of the packages that lxc recommends, they include
// the programs that give guests their ids and the loader of AppArmor profiles.
var packages = packaging.InAll("lxc", "uidmap", "dnsmasq-base", "nftables", "iproute2", "apparmor", "btrfs-progs", "squashfs-tools")

// programs are the programs of the packages that the driver runs.
var programs = []string{paths.LXCStart, paths.LXCAttach, paths.LXCStop, paths.NewUIDMap, paths.NewGIDMap, paths.Unsquashfs, paths.IP}

// RootDiskNotice is the key of the notice that root disks have no size limit.
const RootDiskNotice = "root disks of LXC containers"

// Satisfied implements initialisers.Initialiser.
func (i *Initialiser) Satisfied(context.Context) (bool, string) {
	if i.opts.Packages.Unfinished() {
		return false, "an installation of packages was interrupted"
	}
	var lacks []string
	if absent := i.absent(); len(absent) > 0 {
		lacks = append(lacks, "LXC is not there; it is installed")
	}
	if _, _, err := i.opts.IDs(); err != nil {
		lacks = append(lacks, "root gets a range of ids for guests")
	}
	if !i.opts.NoBridge && !i.hasBridge() {
		lacks = append(lacks, "LXC gets the bridge "+Bridge)
	}
	if !i.profileLoaded() {
		lacks = append(lacks, "the AppArmor profile "+profile+" is loaded")
	}
	if why := i.poolLacks(); why != "" {
		lacks = append(lacks, why)
	} else {
		i.opts.Notice(RootDiskNotice, i.limitNotice())
	}
	if ok, why := i.opts.Sysctl.Satisfied(initialisers.ContainerLimits); !ok {
		lacks = append(lacks, why)
	}
	return len(lacks) == 0, strings.Join(lacks, "; ")
}

// absent returns the programs that the host lacks.
func (i *Initialiser) absent() (all []string) {
	for _, program := range programs {
		if _, err := os.Stat(i.opts.Paths.Host(program)); err != nil {
			all = append(all, filepath.Base(program))
		}
	}
	return all
}

// Initialise implements initialisers.Initialiser.
func (i *Initialiser) Initialise(ctx context.Context, progress func(string)) error {
	if err := failpoint.Hit(failpoint.InitLockHeld); err != nil {
		return err
	}
	// The package makes its bridge when it is installed, so the file comes first.
	if err := i.writeNetwork(); err != nil {
		return err
	}
	if err := i.install(ctx, progress); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.InitAptNoRecord); err != nil {
		return err
	}
	if err := i.giveIDs(); err != nil {
		return err
	}
	if err := i.loadProfile(ctx, progress); err != nil {
		return err
	}
	if err := i.startNetwork(ctx, progress); err != nil {
		return err
	}
	if err := i.makePool(ctx, progress); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.InitConfigured); err != nil {
		return err
	}
	return initialisers.RaiseLimits(ctx, i.opts.Sysctl, "lxc", progress)
}

// install installs LXC if the host lacks a part of it.
func (i *Initialiser) install(ctx context.Context, progress func(string)) error {
	ours, err := packaging.Finish(ctx, i.opts.Packages, []string{"lxc"}, progress)
	if err != nil {
		return err
	}
	if !ours && len(i.absent()) == 0 {
		return nil
	}
	names, err := i.packageNames()
	if err != nil {
		return err
	}
	progress("installing LXC")
	if err := i.opts.Packages.Install(ctx, names, progress); err != nil {
		return err
	}
	if absent := i.absent(); len(absent) > 0 {
		return fault.New(fault.NeedsOperator, "cannot find %s, although LXC's packages are installed: install the packages again", strings.Join(absent, ", "))
	}
	return nil
}

// packageNames returns the packages for this host's release. It returns
// fault.NeedsOperator if none are known for the release.
func (i *Initialiser) packageNames() ([]string, error) {
	release, err := packaging.ReadRelease(i.opts.Paths.OSRelease())
	if err != nil {
		return nil, err
	}
	return packages.On(release, "LXC")
}
