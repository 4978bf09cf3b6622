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
// boot, because another kernel may lead to another outcome.
type Outcome struct {
	// Accelerator is AcceleratorKVM or AcceleratorTCG.
	Accelerator string `json:"accelerator"`
	// Reason says why KVM is not used. It is empty if KVM is used.
	Reason string `json:"reason,omitempty"`
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

// prove decides how guests run on this host and stores the Outcome, unless one
// is already stored for the configured accelerator.
func (i *Initialiser) prove(ctx context.Context, progress func(string)) error {
	if o, err := ReadOutcome(i.opts.Paths); err == nil && o.Asked == i.opts.Accelerator {
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
			o.Reason = rpc.Clean(err.Error(), 512)
			i.log.Warn("Guests run without KVM, slowly.", "reason", o.Reason)
		}
	}
	if err := i.askCapabilities(ctx, progress); err != nil {
		return err
	}
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
// in a second or two.
const tryTime = 20 * time.Second

// firstWords are at the beginning of a Linux kernel's output. A kernel prints
// one of lastWords after it has set up memory, interrupts, timers and devices,
// when it starts its first program, or panics because there is none.
const firstWords = "Linux version"

var lastWords = []string{"Freeing unused kernel", "Unable to mount root", "Kernel panic - not syncing"}

// tryKVM boots a stock kernel for a moment under KVM. The device node alone
// proves nothing, because on some hosts it can be opened, but a guest hangs
// before its first output. The error is fault.Transient if the kernel could not
// be started.
func (i *Initialiser) tryKVM(ctx context.Context) error {
	if _, err := os.Stat(i.opts.Paths.Host("/dev/kvm")); err != nil {
		return errors.New("the host has no /dev/kvm")
	}
	kernel := i.stockKernel()
	if kernel == "" {
		return errors.New("there is no kernel in /boot to test KVM with, and its device alone is no proof")
	}
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
	spoke, up := false, false
	_, err := runner.Run(ctx, run.Command{
		Path: emulator(), Args: args, Timeout: tryTime,
		OnLine: func(line string) {
			spoke = spoke || strings.Contains(line, firstWords)
			for _, words := range lastWords {
				if strings.Contains(line, words) {
					up = true
					cancel()
				}
			}
		},
	})
	switch {
	case up:
		return nil
	case errors.Is(err, context.DeadlineExceeded) && spoke:
		return fmt.Errorf("a kernel began under KVM and did not come up within %s", tryTime)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("/dev/kvm opens, but a kernel under KVM printed nothing for %s", tryTime)
	case err != nil:
		return err
	}
	return errors.New("a kernel under KVM ended before it had come up")
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
