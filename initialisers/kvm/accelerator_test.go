package kvm_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"hostler/initialisers/kvm"
	"hostler/internal/fault"
	"hostler/internal/run"
)

// C20: a device node proves nothing. KVM counts as usable after a stock kernel
// has come up under it. If not, auto falls back to TCG with the reason, and kvm
// is an error.
func TestAcceleratorIsProven(t *testing.T) {
	comes := []string{"Linux version 6.1", "Freeing unused kernel image"}
	for _, c := range []struct {
		asked        string
		device       bool
		kernel       bool
		words        []string
		end          error
		accelerator  string
		reason, fail string
	}{
		{kvm.AcceleratorTCG, true, true, comes, nil, "tcg", "it was asked for", ""},
		{"", true, true, comes, nil, "kvm", "", ""},
		{kvm.AcceleratorKVM, true, true, comes, nil, "kvm", "", ""},
		{"", false, true, comes, nil, "tcg", "no /dev/kvm", ""},
		{"", true, false, comes, nil, "tcg", "there is no kernel in /boot", ""},
		{"", true, true, nil, context.DeadlineExceeded, "tcg", "printed nothing", ""},
		{"", true, true, comes[:1], context.DeadlineExceeded, "tcg", "did not come up within", ""},
		{"", true, true, comes[:1], nil, "tcg", "ended before it had come up", ""},
		{"", true, true, nil, errors.New("no such CPU"), "tcg", "no such CPU", ""},
		{kvm.AcceleratorKVM, true, true, nil, context.DeadlineExceeded, "", "", "as types.kvm.accelerator demands"},
	} {
		h := newHost(t)
		h.programs()
		h.libvirt.listen()
		h.opts.Accelerator = c.asked
		if c.device {
			h.file("/dev/kvm", "")
		}
		if c.kernel {
			h.file("/boot/vmlinuz-6.1", "")
		}
		h.run.Handle(emulator, func(_ context.Context, command run.Command) (run.Result, error) {
			if !slices.Contains(command.Args, h.p.Host("/boot/vmlinuz-6.1")) {
				t.Errorf("QEMU got %q", command.Args)
			}
			for _, line := range c.words {
				command.OnLine(line)
			}
			return run.Result{}, c.end
		})
		err := h.initialise()
		if c.fail != "" {
			if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		o, readErr := kvm.ReadOutcome(h.p)
		if err != nil || readErr != nil || o.Accelerator != c.accelerator || !strings.Contains(o.Reason, c.reason) || (c.reason == "") != (o.Reason == "") {
			t.Errorf("%+v: %+v, %v, %v", c, o, err, readErr)
		}
		h.ran()
		// The outcome is kept until the configuration asks for another
		// accelerator.
		if ok, why := h.satisfied(); !ok || h.initialise() != nil || h.ran() != nil {
			t.Errorf("%+v: satisfied %v, %s", c, ok, why)
		}
		h.opts.Accelerator = map[bool]string{true: kvm.AcceleratorAuto, false: kvm.AcceleratorTCG}[c.asked == kvm.AcceleratorTCG]
		if ok, why := h.satisfied(); ok || !strings.Contains(why, "accelerator of guests has not been tested") {
			t.Errorf("%+v, then %s: satisfied %v, %s", c, h.opts.Accelerator, ok, why)
		}
	}
}

// C20: a trial that systemd did not start says nothing about KVM. It is tried
// again.
func TestTrialWithoutAnAnswerIsNoOutcome(t *testing.T) {
	for _, asked := range []string{kvm.AcceleratorAuto, kvm.AcceleratorKVM} {
		h := newHost(t)
		h.programs()
		h.libvirt.listen()
		h.opts.Accelerator = asked
		h.file("/dev/kvm", "")
		h.file("/boot/vmlinuz-6.1", "")
		h.run.Handle(emulator, func(ctx context.Context, command run.Command) (run.Result, error) {
			// The time begins with the guest, not with the wait for its unit.
			if _, limited := ctx.Deadline(); limited || command.Timeout == 0 {
				t.Errorf("the context is limited: %v; the command: %s", limited, command.Timeout)
			}
			return run.Result{}, fault.New(fault.Transient, "systemd has not answered")
		})
		if err := h.initialise(); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "cannot try KVM: systemd has not answered") {
			t.Errorf("%s: %v", asked, err)
		}
		if o, err := kvm.ReadOutcome(h.p); err == nil {
			t.Errorf("%s: %+v", asked, o)
		}
	}
}

// C20: Supported reports problems that the operator can mend before the
// installation. Accelerator reports how guests run once that is known.
func TestSupported(t *testing.T) {
	h := newHost(t)
	h.opts.Accelerator = kvm.AcceleratorKVM
	ok, why := kvm.New(h.opts).Supported(t.Context())
	if ok || !strings.Contains(why, "there is no /dev/kvm: switch on virtualisation") || !strings.Contains(why, "there is no /dev/net/tun") {
		t.Errorf("supported %v: %s", ok, why)
	}
	h.file("/dev/net/tun", "")
	h.opts.Accelerator = kvm.AcceleratorAuto
	if _, why := kvm.New(h.opts).Supported(t.Context()); strings.Contains(why, "/dev/") {
		t.Errorf("it says %s", why)
	}
	for release, want := range map[string]string{
		"ID=ubuntu\nVERSION_ID=22.04\n": "polkit of Ubuntu 22.04 (0.105) does not read the rule", "ID=ubuntu\nVERSION_ID=24.04\n": "",
		"ID=plan9\n": "its packages there are unknown",
	} {
		h.file("/etc/os-release", release)
		if _, why := kvm.New(h.opts).Supported(t.Context()); !strings.Contains(why, want) || want == "" && strings.Contains(why, "Ubuntu") {
			t.Errorf("%q: it says %s", release, why)
		}
	}
	h.pkgs.unavailable = []string{"polkitd"}
	h.file("/etc/os-release", "ID=debian\n")
	if _, why := kvm.New(h.opts).Supported(t.Context()); !strings.Contains(why, "no repository of this host offers polkitd") {
		t.Errorf("it says %s", why)
	}
	if text, _ := kvm.New(h.opts).Guests(); text != "" {
		t.Errorf("nothing was tried, and it says %q", text)
	}
	h.programs()
	h.libvirt.listen()
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	if text, _ := kvm.New(h.opts).Guests(); !strings.Contains(text, "guests run without KVM") || !strings.Contains(text, "no /dev/kvm") {
		t.Errorf("it says %q", text)
	}
}
