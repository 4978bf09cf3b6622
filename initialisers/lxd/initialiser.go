// Package lxd makes a host able to run LXD containers: packages, daemon, first
// configuration and kernel limits. It uses an existing LXD as it is, from any
// kind of installation.
package lxd

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"hostler/initialisers"
	"hostler/internal/failpoint"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/packaging"
	"hostler/sysctl"
)

// The ways in which guests get a network (Options.NetworkMethod).
const (
	// NetworkLocal gives machines without a declared network a NIC on a bridge
	// of LXD, if the default profile gives them none.
	NetworkLocal = "local"
	// NetworkProvider leaves LXD's networks alone: guests use declared
	// networks.
	NetworkProvider = "provider"
)

// owner is the owner of this package's kernel parameters in package sysctl.
const owner = "lxd"

// Options configures the initialiser.
type Options struct {
	Runner   run.Runner
	Packages packaging.Manager
	Sysctl   Limits
	Paths    paths.Paths
	// LXDDir is the value of LXD_DIR; if it is empty, the initialiser looks for
	// the socket in the packages' usual places.
	LXDDir string
	// Group may use the socket of a daemon that is started directly, without a
	// systemd unit; empty means Debian's "lxd".
	Group string
	// Pool is the wanted storage pool; empty means "default".
	Pool string
	// MTU is the bridge's MTU in bytes; 0 leaves LXD's default.
	MTU int
	// NetworkMethod is NetworkLocal (also when empty) or NetworkProvider.
	NetworkMethod string
	// Notice shows a text in the host's status; an empty text removes it.
	// Notice may be nil.
	Notice func(key, text string)
	Logger *slog.Logger
	// StartTimeout bounds the wait for a started daemon; 0 is 5 minutes.
	StartTimeout time.Duration
}

// Limits is the part of package sysctl that the initialiser uses.
type Limits interface {
	Satisfied(settings []sysctl.Setting) (bool, string)
	Writable(name string) bool
	Apply(ctx context.Context, owner string, settings []sysctl.Setting) ([]string, error)
}

// Initialiser prepares the host for LXD containers.
type Initialiser struct {
	opts Options
	log  *slog.Logger
}

var _ initialisers.Initialiser = (*Initialiser)(nil)

// New returns an initialiser without doing anything on the host.
func New(opts Options) *Initialiser {
	if opts.Pool == "" {
		opts.Pool = "default"
	}
	if opts.Group == "" {
		opts.Group = "lxd"
	}
	if opts.NetworkMethod == "" {
		opts.NetworkMethod = NetworkLocal
	}
	if opts.Notice == nil {
		opts.Notice = func(string, string) {}
	}
	if opts.StartTimeout == 0 {
		opts.StartTimeout = 5 * time.Minute
	}
	return &Initialiser{opts: opts, log: opts.Logger}
}

// Satisfied implements initialisers.Initialiser.
func (i *Initialiser) Satisfied(ctx context.Context) (bool, string) {
	if i.opts.Packages.Unfinished() {
		return false, "an installation of packages was interrupted"
	}
	socket := i.socket()
	if socket == "" {
		why := "LXD is not there; it is installed"
		if steps, err := i.plan(seen{}); err == nil {
			why += " and gets " + steps.String()
		}
		return false, why
	}
	if err := ping(ctx, socket); err != nil {
		i.log.Debug("LXD does not answer.", "error", err)
		return false, "LXD " + initialisers.NotAnswering + "; start it: systemctl start lxd"
	}
	have, err := observe(ctx, socket)
	if err != nil {
		return false, err.Error()
	}
	i.opts.Notice("MTU of LXD's bridge", mtuNotice(have, i.wanted()))
	i.opts.Notice(RootDiskNotice, rootDiskNotice(have, i.wanted()))
	steps, err := i.plan(have)
	if err != nil {
		return false, err.Error()
	}
	ok, why := i.opts.Sysctl.Satisfied(limits)
	if lacks := steps.String(); lacks != "" {
		return false, strings.TrimSuffix("LXD gets "+lacks+"; "+why, "; ")
	}
	return ok, why
}

// Initialise implements initialisers.Initialiser.
func (i *Initialiser) Initialise(ctx context.Context, progress func(string)) error {
	if err := failpoint.Hit(failpoint.InitLockHeld); err != nil {
		return err
	}
	if err := i.install(ctx, progress); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.InitAptNoRecord); err != nil {
		return err
	}
	socket, err := i.start(ctx, progress)
	if err != nil {
		return err
	}
	if err := i.configure(ctx, socket, progress); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.InitConfigured); err != nil {
		return err
	}
	return i.raiseLimits(ctx, progress)
}

// socket returns the path of LXD's socket, which may be silent, or "" if there
// is none.
func (i *Initialiser) socket() string { return i.opts.Paths.FindLXDSocket(i.opts.LXDDir) }

// install installs LXD if the host has none.
func (i *Initialiser) install(ctx context.Context, progress func(string)) error {
	unfinished := i.opts.Packages.Unfinished()
	if !unfinished {
		if socket := i.socket(); socket != "" && ping(ctx, socket) == nil {
			return nil // any kind of installation is fine
		}
	}
	set, err := i.packageSet()
	if err != nil {
		if i.programExists() {
			return nil // installed by hand on a release without known packages
		}
		return err
	}
	missing, err := i.opts.Packages.Missing(set.Names)
	if err != nil {
		return err
	}
	otherwise := slices.Contains(missing, "lxd") && i.programExists() // dpkg does not know the installed program
	if !unfinished && (len(missing) == 0 || otherwise) {
		return nil
	}
	progress("installing LXD")
	return i.opts.Packages.Install(ctx, set.Names, set.Options, progress)
}

func (i *Initialiser) packageSet() (packaging.Set, error) {
	release, err := packaging.ReadRelease(i.opts.Paths.OSRelease())
	if err != nil {
		return packaging.Set{}, err
	}
	return packagesOn(release)
}

func (i *Initialiser) programExists() bool {
	_, err := os.Stat(i.opts.Paths.Host(paths.LXD))
	return err == nil
}
