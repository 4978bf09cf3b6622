// Package kvm prepares a host for KVM guests under libvirt. It installs
// packages, starts the daemon, makes a storage pool and a network, and tests
// KVM with a trial guest.
package kvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"hostler/initialisers"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/kvm/rpc"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/packaging"
)

// Options are the parameters of the initialiser.
type Options struct {
	Runner run.Runner
	// Trial runs the guest that tests KVM; nil means Runner.
	Trial    run.Runner
	Packages packaging.Manager
	Paths    paths.Paths
	// Socket is libvirt's socket; empty means the host's own.
	Socket string
	// Pool is the name of the storage pool; empty means "default".
	Pool string
	// PoolDir is the folder of a new pool. If it is empty, the pool "default"
	// gets libvirt's folder for images, and another pool gets a folder of its
	// name in /var/lib/libvirt/pools.
	PoolDir string
	// Accelerator is auto, kvm or tcg; empty means auto.
	Accelerator string
	// StartTimeout bounds the wait for a started daemon; 0 means 2 minutes.
	StartTimeout time.Duration
	// CapabilitiesTimeout bounds the wait for libvirt's probe of QEMU; 0 means
	// 15 minutes.
	CapabilitiesTimeout time.Duration
	Logger              *slog.Logger
}

// Initialiser prepares the host for KVM guests.
type Initialiser struct {
	opts Options
	log  *slog.Logger

	lateCalls rpc.LateCalls
	tried     atomic.Bool // this process has stored an outcome
}

var (
	_ initialisers.Initialiser = (*Initialiser)(nil)
	_ initialisers.Pinger      = (*Initialiser)(nil)
)

// New returns an initialiser. It does not touch the host yet.
func New(opts Options) *Initialiser {
	opts.Socket = cmp.Or(opts.Socket, opts.Paths.LibvirtSocket())
	opts.Pool = cmp.Or(opts.Pool, "default")
	if opts.PoolDir == "" {
		opts.PoolDir = opts.Paths.Host(paths.LibvirtImages)
		if opts.Pool != "default" {
			opts.PoolDir = opts.Paths.Host(paths.LibvirtPools + opts.Pool)
		}
	}
	opts.Accelerator = cmp.Or(opts.Accelerator, AcceleratorAuto)
	opts.StartTimeout = cmp.Or(opts.StartTimeout, 2*time.Minute)
	opts.CapabilitiesTimeout = cmp.Or(opts.CapabilitiesTimeout, 15*time.Minute)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	return &Initialiser{opts: opts, log: opts.Logger}
}

// Satisfied implements initialisers.Initialiser.
func (i *Initialiser) Satisfied(ctx context.Context) (bool, string) {
	if i.opts.Packages.Unfinished() {
		return false, "an installation of packages was interrupted"
	}
	if why := i.lacksPrograms(); why != "" {
		return false, why
	}
	have, err := observe(ctx, i.opts.Socket, i.opts.Pool)
	if err != nil {
		i.log.Debug("libvirt does not answer.", "error", err)
		return false, silent + "; " + startLibvirt
	}
	if why := have.lacks(i.opts.Pool, i.networkOnce()); why != "" {
		return false, why
	}
	if why := i.unproven(); why != "" {
		return false, why
	}
	return true, ""
}

// The message and the remedy if libvirt does not answer.
const (
	silent       = "libvirt does not answer"
	startLibvirt = "start it: systemctl start libvirtd"
)

// Silent implements initialisers.Pinger.
func (i *Initialiser) Silent(ctx context.Context) (message, mend string) {
	if i.lacksPrograms() != "" {
		return "", ""
	}
	if _, err := observe(ctx, i.opts.Socket, i.opts.Pool); err != nil {
		return silent, startLibvirt
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
	if err := i.openKVM(); err != nil {
		return err
	}
	if err := i.start(ctx, progress); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.InitWaitDaemon); err != nil {
		return err
	}
	if err := i.configure(ctx, progress); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.InitConfigured); err != nil {
		return err
	}
	return i.prove(ctx, progress)
}

// lacksPrograms returns a text that names a missing program, or "" if all
// exist. The programs are the daemon, the emulator and the tool that makes
// disks.
func (i *Initialiser) lacksPrograms() string {
	for _, program := range []string{paths.Libvirtd, emulator(), paths.QemuImg} {
		if _, err := os.Stat(i.opts.Paths.Host(program)); err != nil {
			return program + " is not there"
		}
	}
	return ""
}

// install installs libvirt and QEMU if they are missing.
func (i *Initialiser) install(ctx context.Context, progress func(string)) error {
	ours, err := packaging.Finish(ctx, i.opts.Packages, []string{daemonPackage}, progress)
	if err != nil {
		return err
	}
	if !ours && i.lacksPrograms() == "" {
		return nil // already installed, by whatever means
	}
	names, err := i.packageNames()
	if err != nil {
		return err
	}
	if i.lacksPrograms() == "" {
		if missing, err := i.opts.Packages.Missing(names); err != nil || len(missing) == 0 {
			return err
		}
	}
	progress("installing libvirt and QEMU")
	// Start the network of a newly installed libvirt, even if the administrator
	// had stopped the network of an earlier libvirt.
	if err := os.Remove(i.opts.Paths.NetworkMark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot forget that libvirt's network was set up: %w", err)
	}
	if err := i.opts.Packages.Install(ctx, names, progress); err != nil {
		return err
	}
	if why := i.lacksPrograms(); why != "" {
		return fault.New(fault.NeedsOperator, "cannot set up KVM: %s after its packages were installed", why)
	}
	return nil
}
