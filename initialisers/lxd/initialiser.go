// Package lxd prepares a host for containers of LXD or Incus. It installs
// packages, starts the daemon, makes the first configuration and raises kernel
// limits. It uses an existing daemon, however that was installed. "LXD" in the
// comments means either daemon; Dialect holds their differences.
package lxd

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"hostler/initialisers"
	"hostler/internal/failpoint"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/packaging"
)

// The ways in which guests get a network (Options.NetworkMethod).
const (
	// NetworkLocal gives machines without a declared network a NIC on a bridge
	// of LXD, if the default profile gives them none.
	NetworkLocal = "local"
	// NetworkProvider makes and changes no network of LXD. Guests use declared
	// networks.
	NetworkProvider = "provider"
)

// Options configures the initialiser.
type Options struct {
	// Dialect is LXD or Incus; empty means LXD.
	Dialect  Dialect
	Runner   run.Runner
	Packages packaging.Manager
	Sysctl   initialisers.Limits
	Paths    paths.Paths
	// Dir is the daemon's state folder, as in the variable LXD_DIR. If it is
	// empty, the initialiser looks for the socket in the usual places.
	Dir string
	// Group is the group that has access to the socket of a daemon that hostler
	// starts directly, without a systemd unit. Empty means the group in
	// Debian's package.
	Group string
	// Pool is the wanted storage pool; empty means "default".
	Pool string
	// MTU is the MTU in bytes of a bridge that hostler makes; 0 means LXD's
	// default.
	MTU int
	// NetworkMethod is NetworkLocal or NetworkProvider; empty means
	// NetworkLocal.
	NetworkMethod string
	// Notice shows a text in the host's status under a key. An empty text
	// removes the notice. The function may be nil.
	Notice func(key, text string)
	Logger *slog.Logger
	// StartTimeout bounds the wait for a started daemon; 0 means 5 minutes.
	StartTimeout time.Duration
}

// Initialiser prepares the host for LXD containers.
type Initialiser struct {
	opts Options
	log  *slog.Logger
}

var (
	_ initialisers.Initialiser = (*Initialiser)(nil)
	_ initialisers.Pinger      = (*Initialiser)(nil)
	_ initialisers.Adviser     = (*Initialiser)(nil)
)

// New returns an initialiser without doing anything on the host.
func New(opts Options) *Initialiser {
	if opts.Dialect.Name == "" {
		opts.Dialect = LXD
	}
	if opts.Pool == "" {
		opts.Pool = "default"
	}
	if opts.Group == "" {
		opts.Group = opts.Dialect.group
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
		why := i.opts.Dialect.Name + " is not there; it is installed"
		if steps, err := i.plan(seen{}); err == nil {
			why += " and gets " + steps.String()
		}
		return false, why
	}
	if message, mend := i.Silent(ctx); message != "" {
		return false, message + "; " + mend
	}
	have, err := i.observe(ctx, socket)
	if err != nil {
		return false, err.Error()
	}
	i.opts.Notice("MTU of "+i.opts.Dialect.Name+"'s bridge", mtuNotice(have, i.wanted()))
	i.opts.Notice(i.opts.Dialect.RootDiskNotice(), rootDiskNotice(have, i.wanted()))
	steps, err := i.plan(have)
	if err != nil {
		return false, err.Error()
	}
	ok, why := i.opts.Sysctl.Satisfied(initialisers.ContainerLimits)
	if lacks := steps.String(); lacks != "" {
		return false, strings.TrimSuffix(i.opts.Dialect.Name+" gets "+lacks+"; "+why, "; ")
	}
	return ok, why
}

// Silent implements initialisers.Pinger.
func (i *Initialiser) Silent(ctx context.Context) (message, mend string) {
	socket := i.socket()
	if socket == "" {
		return "", ""
	}
	if err := ping(ctx, socket); err != nil {
		i.log.Debug("The daemon does not answer.", "error", err)
		return i.opts.Dialect.Name + " does not answer", "start it: systemctl start " + i.service()
	}
	return "", ""
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
	return initialisers.RaiseLimits(ctx, i.opts.Sysctl, i.opts.Dialect.Type, progress)
}

// socket returns the path of LXD's socket, or "" if there is none. A daemon
// need not answer at the socket.
func (i *Initialiser) socket() string { return i.opts.Dialect.FindSocket(i.opts.Paths, i.opts.Dir) }

// install installs LXD if the host has none. It installs no package beside an
// LXD that was installed by other means.
func (i *Initialiser) install(ctx context.Context, progress func(string)) error {
	known := slices.DeleteFunc([]string{i.opts.Dialect.own, i.opts.Dialect.former}, func(name string) bool { return name == "" })
	ours, err := packaging.Finish(ctx, i.opts.Packages, known, progress)
	if err != nil {
		return err
	}
	if !ours {
		if socket := i.socket(); socket != "" && ping(ctx, socket) == nil {
			return nil // LXD answers, however it was installed
		}
	}
	names, own, err := i.packageNames(ctx, func() error { return i.opts.Packages.FetchLists(ctx, progress) })
	if err != nil {
		if i.programExists() {
			return nil // LXD was installed by hand on a release without known packages
		}
		return err
	}
	missing, err := i.opts.Packages.Missing(names)
	if err != nil {
		return err
	}
	// dpkg does not know the installed program.
	otherwise := slices.Contains(missing, own) && i.programExists() && !i.opts.Packages.Unfinished(own)
	if len(missing) == 0 || otherwise {
		return nil
	}
	progress("installing " + i.opts.Dialect.Name)
	return i.opts.Packages.Install(ctx, names, progress)
}
