//go:build integration

// Package kvm tries KVM machines from outside: the real daemon, the real
// command, a real libvirt and real guests.
package kvm

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/containerbroker/kvm/kvmtest"
	"hostler/tests/harness"
)

func start(t *testing.T) (*kvmtest.Server, *harness.Agent, string) {
	t.Helper()
	s := kvmtest.Start(t)
	a := harness.NewAgent(t, t.TempDir())
	a.Prefix = s.Prefix()
	a.Configure("namespace: test\nretry-delay: 1s\nstart-retries: 2\ntypes: {kvm: {accelerator: tcg}}\n")
	a.Start()
	return s, a, kvmtest.TinyReference(t)
}

// A machine from nothing: planned, made, reached, changed, stopped by hand,
// killed under, and removed without a trace. K1, K3, K5, Z3, Z6, Z7.
func TestMachineFromNothingToNothing(t *testing.T) {
	s, a, image := start(t)
	declare := func(more string) string {
		return a.File("site", "version: 1\nmachines:\n  web: {type: kvm, image: \""+image+"\", cpus: 1"+more+"}\n")
	}
	file := declare("")
	if code, out := a.Exit("plan", "-f", file); code != 2 || !strings.Contains(out, "machine/web") || len(s.Names()) != 0 {
		t.Fatalf("plan exited with %d:\n%s", code, out)
	}
	a.Run("apply", "-f", file, "--wait", "--timeout", "4m")
	if code, out := a.Exit("plan", "-f", file); code != 0 {
		t.Errorf("the second plan exited with %d:\n%s", code, out)
	}
	harness.Wait(t, "an address", time.Minute, func() error {
		if row := a.Machines()["web"]; row.Status != "running" || len(row.Addresses) == 0 {
			return fmt.Errorf("%+v", row)
		}
		return nil
	})
	if out := a.Run("exec", "web", "--", "hostname"); strings.TrimSpace(out) != "web" {
		t.Errorf("the guest calls itself %q", out)
	}
	if out := a.Run("logs", "web"); !strings.Contains(out, "TINY-READY web") {
		t.Errorf("its console said %q", out)
	}

	// What it can take live it takes live; what needs a restart waits until a
	// person allows that.
	pid := s.Guest("web")
	file = declare(", memory: 768MiB")
	code, out := a.Exit("plan", "-f", file)
	if code != 2 || !strings.Contains(out, "restart") {
		t.Errorf("plan exited with %d:\n%s", code, out)
	}
	if s.Guest("web") != pid {
		t.Error("a plan restarted the guest")
	}
	file = declare(", autostart: false")
	a.Run("apply", "-f", file, "--wait")
	if s.Guest("web") != pid {
		t.Error("a live change restarted the guest")
	}

	// The agent's death costs the guest nothing, and nothing is made twice.
	a.Kill()
	a.Start()
	a.Run("wait", "machine/web", "--for", "ready", "--timeout", "2m")
	if s.Guest("web") != pid || len(s.Names()) != 1 {
		t.Errorf("process %d, was %d; domains %v", s.Guest("web"), pid, s.Names())
	}

	// A guest that died is started again.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	harness.Wait(t, "the guest to run again", 2*time.Minute, func() error {
		if state := s.State("web"); state != "running" {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})

	a.Run("delete", "machine/web", "--wait", "--timeout", "2m")
	if names, files := s.Names(), s.Files(); len(names)+len(files) != 0 {
		t.Errorf("left behind: domains %v, files %v", names, files)
	}
}

// An agent that is killed in the middle of making a machine makes exactly one.
func TestKilledWhileMaking(t *testing.T) {
	s, a, image := start(t)
	file := a.File("site", "version: 1\nmachines:\n  web: {type: kvm, image: \""+image+"\", running: false}\n")
	a.Run("apply", "-f", file, "--wait", "--timeout", "2m") // the host is set up, the image is there
	a.Run("delete", "machine/web", "--wait")
	for n := range 6 {
		a.Run("apply", "-f", file)
		time.Sleep(time.Duration(n) * 40 * time.Millisecond) // a moment of its making, not a wait for anything
		a.Kill()
		a.Start()
		a.Run("apply", "-f", file, "--wait", "--timeout", "2m")
		if names := s.Names(); len(names) != 1 || names[0] != "web" {
			t.Fatalf("domains %v", names)
		}
		if files := s.Files(); len(files) != 2 {
			t.Fatalf("files %v", files)
		}
		a.Run("delete", "machine/web", "--wait")
		if names, files := s.Names(), s.Files(); len(names)+len(files) != 0 {
			t.Fatalf("left behind: domains %v, files %v", names, files)
		}
	}
}

// A domain that somebody else made is a conflict, told as one, and stays.
func TestForeignDomainIsAConflict(t *testing.T) {
	s, a, image := start(t)
	s.Define("define", "<domain type='qemu'><name>web</name><memory unit='MiB'>64</memory><os><type>hvm</type></os></domain>")
	before := s.Virsh("dumpxml", "web")
	code, out := a.Exit("apply", "-f", a.File("site", "version: 1\nmachines:\n  web: {type: kvm, image: \""+image+"\"}\n"), "--wait", "--timeout", "30s")
	if code == 0 || !strings.Contains(out, "adopt") {
		t.Errorf("apply exited with %d:\n%s", code, out)
	}
	if after := s.Virsh("dumpxml", "web"); after != before {
		t.Errorf("it became %s", after)
	}
}

// A domain that somebody else made is taken over while it runs, written down
// so that it can be read again, and let go as it was.
func TestAdoptAndRelease(t *testing.T) {
	s, a, image := start(t)
	// The host is set up for the type with the first machine of it.
	a.Apply("site", defined(image, "web"))
	define(s, "small", "", false)
	if code, out := a.Exit("adopt", "kvm/small"); code == 0 || !strings.Contains(out, "64MiB is too small") {
		t.Errorf("less memory than can be declared: exit %d:\n%s", code, out)
	}
	s.Define("define", "<domain type='qemu'><name>legacy</name><memory unit='MiB'>512</memory><os><type>hvm</type></os></domain>")
	s.Virsh("start", "legacy")
	// libvirt keeps the element in which a stamp stood.
	definition := func() string {
		return strings.ReplaceAll(s.Virsh("dumpxml", "--inactive", "legacy"), "  <metadata/>\n", "")
	}
	pid, before := s.Guest("legacy"), definition()
	a.Run("adopt", "kvm/legacy")
	harness.Wait(t, "the adopted machine to be seen", time.Minute, func() error {
		if row := a.Machines()["legacy"]; row.Status != "running" {
			return fmt.Errorf("%+v", row)
		}
		return nil
	})
	if code, out := a.Exit("plan", "-f", a.File("again", a.Run("export", "legacy"))); code != 0 {
		t.Errorf("the plan of what was exported exits with %d:\n%s", code, out)
	}
	// Nothing else can be made from what it runs from.
	code, out := a.Exit("apply", "-f", a.File("copy", "version: 1\nmachines:\n  copy: {type: kvm, image: \"kvm:unknown\"}\n"), "--wait", "--timeout", "30s")
	if code == 0 || !strings.Contains(out, "taken over") {
		t.Errorf("a machine of no image: exit %d:\n%s", code, out)
	}
	a.Run("release", "legacy")
	harness.Wait(t, "the release", time.Minute, func() error {
		if after := definition(); after != before {
			return fmt.Errorf("it is %s, was %s", after, before)
		}
		return nil
	})
	if s.Guest("legacy") != pid {
		t.Error("the guest was restarted")
	}
	// P28: what hostler made keeps its image while it is let go, and is
	// hostler's with its files when it is taken back.
	a.Run("release", "web")
	harness.Wait(t, "the release", time.Minute, func() error {
		if row, there := a.Machines()["web"]; there {
			return fmt.Errorf("%+v", row)
		}
		return nil
	})
	_, digest, _ := strings.Cut(image, "sha256=")
	if code, out := a.Exit("image", "delete", digest); code == 0 || !strings.Contains(out, "used by web") {
		t.Errorf("deleting the image of a released machine: exit %d:\n%s", code, out)
	}
	a.Run("adopt", "kvm/web")
	if code, out := a.Exit("plan", "-f", a.File("again", a.Run("export", "web"))); code != 0 {
		t.Errorf("the plan of what was exported exits with %d:\n%s", code, out)
	}
	a.Run("delete", "machine/web", "--wait")
	if files := s.Files(); len(files) != 0 {
		t.Errorf("files %v are left", files)
	}
}
