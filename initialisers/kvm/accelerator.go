package kvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/kvm/rpc"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// The accelerators that the configuration may name. With auto the initialiser
// uses KVM if a trial guest runs under KVM, and otherwise TCG.
const (
	AcceleratorAuto = "auto"
	AcceleratorKVM  = "kvm"
	AcceleratorTCG  = "tcg"
)

// Outcome records how guests run on this host. It is stored until the next
// boot, because another kernel may lead to another outcome. If the trial ran out of
// time, it counts only until the next agent starts.
type Outcome struct {
	// Accelerator is AcceleratorKVM or AcceleratorTCG.
	Accelerator string `json:"accelerator"`
	// Reason says why KVM is not used. It is empty if KVM is used.
	Reason string `json:"reason,omitempty"`
	// TimedOut is true if the trial of KVM had no answer in time. KVM may be slow,
	// e.g. because many guests start with the host.
	TimedOut bool `json:"timed-out,omitempty"`
	// Asked is the accelerator that the configuration named.
	Asked string `json:"asked"`
}

// ReadOutcome returns the outcome of the current boot.
func ReadOutcome(p paths.Paths) (Outcome, error) {
	var o Outcome
	data, err := os.ReadFile(p.Accelerator())
	if err != nil {
		return o, err
	}
	err = json.Unmarshal(data, &o)
	return o, err
}

// unproven returns the reason why a trial of KVM is due, or "".
func (i *Initialiser) unproven() string {
	switch o, err := ReadOutcome(i.opts.Paths); {
	case err != nil || o.Asked != i.opts.Accelerator:
		return "the accelerator of guests has not been tested yet"
	case o.TimedOut && !i.tried.Load():
		return "the last test of KVM had no answer in time"
	}
	return ""
}

// prove decides how guests run on this host and stores the Outcome, unless one
// is already stored for the configured accelerator.
func (i *Initialiser) prove(ctx context.Context, progress func(string)) error {
	if i.unproven() == "" {
		return nil
	}
	o := Outcome{Accelerator: AcceleratorTCG, Asked: i.opts.Accelerator, Reason: "it was asked for"}
	if i.opts.Accelerator != AcceleratorTCG {
		progress("testing whether KVM runs a guest")
		err := i.tryKVM(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case err == nil:
			o = Outcome{Accelerator: AcceleratorKVM, Asked: i.opts.Accelerator}
		case fault.Is(err, fault.Transient):
			return fmt.Errorf("cannot try KVM: %w", err)
		case i.opts.Accelerator == AcceleratorKVM:
			return fault.New(fault.NeedsOperator, "cannot run guests under KVM as types.kvm.accelerator demands: %w", err)
		default:
			o.Reason, o.TimedOut = rpc.Clean(err.Error(), 512), fault.Is(err, fault.NotReady)
			i.log.Warn("Guests run without KVM, slowly.", "reason", o.Reason)
		}
	}
	if err := i.askCapabilities(ctx, progress); err != nil {
		return err
	}
	i.tried.Store(true)
	return o.Write(i.opts.Paths)
}

// askCapabilities makes libvirt probe its QEMU before the first domain is
// defined. libvirt stores the answer. The first probe takes a minute on an idle
// host. On a busy host it would exceed the time limit of a definition.
func (i *Initialiser) askCapabilities(ctx context.Context, progress func(string)) error {
	progress("asking libvirt for QEMU's abilities, which may take minutes the first time")
	_, err := rpc.CallUnlessLate(ctx, &i.lateCalls, i.opts.Socket, callTimeout, i.opts.CapabilitiesTimeout, "read QEMU's abilities",
		func(l *libvirt.Libvirt) (string, error) {
			return l.ConnectGetDomainCapabilities(libvirt.OptString{emulator()}, nil, nil, nil, 0)
		})
	return err
}

// Write stores the outcome until the next boot.
func (o Outcome) Write(p paths.Paths) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	// The mode is 0644, because the provisioner runs as another user and reads
	// the file.
	return fault.Explain(atomicfile.Write(p.Accelerator(), append(data, '\n'), 0o644), "cannot keep how guests run here")
}

// tryTime limits the trial of a guest under KVM. If KVM works, the kernel boots
// in a second or two. A kernel that has begun in this time has slowTime, since KVM
// runs it.
const (
	tryTime  = 20 * time.Second
	slowTime = 2 * time.Minute
)

// firstWords are at the beginning of a Linux kernel's output. A kernel prints
// one of lastWords after it has set up memory, interrupts, timers and devices,
// when it starts its first program, or panics because there is none.
const firstWords = "Linux version"

var lastWords = []string{"Freeing unused kernel", "Unable to mount root", "Kernel panic - not syncing"}

// tryKVM boots a stock kernel for a moment under KVM. The device node alone
// proves nothing, because on some hosts it can be opened, but a guest hangs
// before its first output. The error is fault.Transient if the kernel could not
// be started, and fault.NotReady if the time ran out.
func (i *Initialiser) tryKVM(ctx context.Context) error {
	if _, err := os.Stat(i.opts.Paths.Host("/dev/kvm")); err != nil {
		return errors.New("the host has no /dev/kvm")
	}
	kernel := i.stockKernel()
	if kernel == "" {
		return errors.New("there is no kernel in /boot to test KVM with, and its device alone is no proof")
	}
	begun, err := i.boot(ctx, kernel, tryTime)
	if begun && fault.Is(err, fault.NotReady) {
		_, err = i.boot(ctx, kernel, slowTime)
	}
	return err
}

// boot boots a kernel under KVM until it has come up. It also reports whether the
// kernel has begun. The error is fault.NotReady if the time ran out.
func (i *Initialiser) boot(ctx context.Context, kernel string, limit time.Duration) (begun bool, err error) {
	args := []string{
		"-accel", "kvm", "-cpu", "host", "-machine", "q35", "-m", "512", "-nodefaults", "-no-user-config", "-display", "none",
		"-no-reboot", "-serial", "stdio", "-kernel", kernel, "-append", "console=ttyS0 panic=-1",
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	runner := i.opts.Trial
	if runner == nil {
		runner = i.opts.Runner
	}
	up := false
	_, err = runner.Run(ctx, run.Command{
		Path: emulator(), Args: args, Timeout: limit,
		OnLine: func(line string) {
			begun = begun || strings.Contains(line, firstWords)
			for _, words := range lastWords {
				if strings.Contains(line, words) {
					up = true
					cancel()
				}
			}
		},
	})
	switch late := errors.Is(err, context.DeadlineExceeded); {
	case up:
		return begun, nil
	case late && begun:
		return begun, fault.New(fault.NotReady, "a kernel began under KVM and did not come up within %s", limit)
	case late:
		return begun, fault.New(fault.NotReady, "/dev/kvm opens, but a kernel under KVM printed nothing for %s", limit)
	case err != nil:
		return begun, err
	}
	return begun, errors.New("a kernel under KVM ended before it had come up")
}

// stockKernel returns the path of a kernel of the host, or "" if there is none.
func (i *Initialiser) stockKernel() string {
	for _, path := range []string{"/boot/vmlinuz", "/vmlinuz"} {
		if _, err := os.Stat(i.opts.Paths.Host(path)); err == nil {
			return i.opts.Paths.Host(path)
		}
	}
	entries, _ := os.ReadDir(i.opts.Paths.Host("/boot"))
	for n := len(entries) - 1; n >= 0; n-- {
		if strings.HasPrefix(entries[n].Name(), "vmlinuz-") {
			return i.opts.Paths.Host("/boot/" + entries[n].Name())
		}
	}
	return ""
}

// emulator returns the path of QEMU for the host's own architecture.
func emulator() string {
	if runtime.GOARCH == "arm64" {
		return "/usr/bin/qemu-system-aarch64"
	}
	return "/usr/bin/qemu-system-x86_64"
}
