package kvm_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

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
		// accelerator. A trial without an answer in time is repeated when an agent
		// starts.
		kept := !errors.Is(c.end, context.DeadlineExceeded)
		if ok, why := h.satisfied(); ok != kept || h.initialise() != nil || (h.ran() == nil) != kept {
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

// C20: a trial that had no answer in time is no proof against KVM. Guests run
// without KVM as long as the agent that made the trial, and the next agent repeats
// it. A kernel that has begun gets more time at once.
func TestSlowTrialIsRepeated(t *testing.T) {
	for _, begins := range []bool{false, true} {
		h := newHost(t)
		h.programs()
		h.libvirt.listen()
		h.opts.Accelerator = kvm.AcceleratorAuto
		h.file("/dev/kvm", "")
		h.file("/boot/vmlinuz-6.1", "")
		var limits []time.Duration
		h.run.Handle(emulator, func(_ context.Context, command run.Command) (run.Result, error) {
			limits = append(limits, command.Timeout)
			if begins {
				command.OnLine("Linux version 6.1")
			}
			if len(limits) == 1 {
				return run.Result{}, context.DeadlineExceeded
			}
			command.OnLine("Freeing unused kernel image")
			return run.Result{}, nil
		})
		agent := kvm.New(h.opts)
		if err := agent.Initialise(t.Context(), func(string) {}); err != nil {
			t.Fatal(err)
		}
		o, err := kvm.ReadOutcome(h.p)
		if begins {
			if err != nil || o.Accelerator != kvm.AcceleratorKVM || len(limits) != 2 || limits[1] <= limits[0] {
				t.Errorf("a kernel that is slow: %+v, %v, after %v", o, err, limits)
			}
			continue
		}
		_, mend := agent.Guests()
		if ok, why := agent.Satisfied(t.Context()); !ok || err != nil || o.Accelerator != kvm.AcceleratorTCG || len(limits) != 1 || !strings.Contains(mend, "systemctl restart hostlerd") {
			t.Errorf("%+v, %v, after %v; satisfied %v, %s; mend %q", o, err, limits, ok, why, mend)
		}
		if ok, why := h.satisfied(); ok || !strings.Contains(why, "no answer in time") {
			t.Errorf("the next agent is satisfied: %v, %s", ok, why)
		}
		if err := h.initialise(); err != nil {
			t.Fatal(err)
		}
		if o, err := kvm.ReadOutcome(h.p); err != nil || o.Accelerator != kvm.AcceleratorKVM {
			t.Errorf("the next agent: %+v, %v", o, err)
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
