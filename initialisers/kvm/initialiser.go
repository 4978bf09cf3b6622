// Package kvm makes a host able to run KVM guests through libvirt: packages,
// daemon, storage pool and network, and a trial of KVM.
package kvm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
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
	// Trial runs the guest that tries KVM; nil: Runner does.
	Trial    run.Runner
	Packages packaging.Manager
	Paths    paths.Paths
	// Socket is libvirt's socket; empty means the host's own.
	Socket string
	// Pool is the name of the storage pool; empty means "default".
	Pool string
	// PoolDir is the folder of a new pool. Empty means libvirt's folder for
	// images, or a folder beside it for a pool that is not "default".
	PoolDir string
	// Accelerator is auto (also when empty), kvm or tcg.
	Accelerator string
	// StartTimeout bounds the wait for a started daemon; 0 is 2 minutes.
	StartTimeout time.Duration
	// CapabilitiesTimeout bounds the wait for libvirt's probe of QEMU; 0 is 15
	// minutes.
	CapabilitiesTimeout time.Duration
	Logger              *slog.Logger
}

// Initialiser prepares the host for KVM guests.
type Initialiser struct {
	opts Options
	log  *slog.Logger

	lateCalls rpc.LateCalls
}

var _ initialisers.Initialiser = (*Initialiser)(nil)

// New returns an initialiser. It does not touch the host yet.
func New(opts Options) *Initialiser {
	if opts.Socket == "" {
		opts.Socket = opts.Paths.LibvirtSocket()
	}
	if opts.Pool == "" {
		opts.Pool = "default"
	}
	if opts.PoolDir == "" {
		opts.PoolDir = opts.Paths.Host(paths.LibvirtImages)
		if opts.Pool != "default" {
			opts.PoolDir = opts.Paths.Host(paths.LibvirtPools + opts.Pool)
		}
	}
	if opts.Accelerator == "" {
		opts.Accelerator = AcceleratorAuto
	}
	if opts.StartTimeout == 0 {
		opts.StartTimeout = 2 * time.Minute
	}
	if opts.CapabilitiesTimeout == 0 {
		opts.CapabilitiesTimeout = 15 * time.Minute
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
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
		return false, "libvirt " + initialisers.NotAnswering + "; start it: systemctl start libvirtd"
	}
	if why := have.lacks(i.opts.Pool, i.networkOnce()); why != "" {
		return false, why
	}
	if o, err := ReadOutcome(i.opts.Paths); err != nil || o.Asked != i.opts.Accelerator {
		return false, "the accelerator of guests has not been tested yet"
	}
	return true, ""
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

// lacksPrograms names a missing program: the daemon, the emulator, or the tool
// that makes disks. It returns "" if all exist.
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
	unfinished := i.opts.Packages.Unfinished()
	if !unfinished && i.lacksPrograms() == "" {
		return nil // already installed, by whatever means
	}
	release, err := packaging.ReadRelease(i.opts.Paths.OSRelease())
	if err != nil {
		return err
	}
	set, err := packages.On(release, "kvm")
	if err != nil {
		return err
	}
	progress("installing libvirt and QEMU")
	// A newly installed libvirt gets its network started, even if an earlier
	// libvirt had its network stopped by the administrator.
	if err := os.Remove(i.opts.Paths.NetworkMark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot forget that libvirt's network was set up: %w", err)
	}
	if err := i.opts.Packages.Install(ctx, set.Names, set.Options, progress); err != nil {
		return err
	}
	if why := i.lacksPrograms(); why != "" {
		return fault.New(fault.NeedsOperator, "cannot set up KVM: %s after its packages were installed", why)
	}
	return nil
}
