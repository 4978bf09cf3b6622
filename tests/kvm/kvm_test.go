//go:build integration

// Package kvm tries KVM machines from outside: the real daemon, the real
// command, a real libvirt and real guests.
package kvm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// A foreign domain is adopted while it runs, exported as a document that can be
// applied, and released unchanged.
func TestAdoptionOfDomains(t *testing.T) {
	w := open(t)
	s, a, image := w.s, w.a, w.image
	a.Start()
	// The host is set up for the type with the first machine of it.
	a.Apply("site", "version: 1\nmachines:\n  web: {type: kvm, image: \""+image+"\", running: false}\n")
	s.Define("define", "<domain type='qemu'><name>small</name><memory unit='MiB'>64</memory><os><type>hvm</type></os></domain>")
	if code, out := a.Exit("adopt", "kvm/small"); code == 0 || !strings.Contains(out, "64MiB is too small") {
		t.Errorf("less memory than can be declared: exit %d:\n%s", code, out)
	}
	w.Make("legacy", "", true)
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
	code, out := a.Exit("apply", "--allow", "destroy", "-f", a.File("copy", "version: 1\nmachines:\n  copy: {type: kvm, image: \"kvm:unknown\"}\n"), "--wait", "--timeout", "30s")
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
	// P28: an instance that a harvest mode left is adopted as the same machine.
	a.Run("harvest", "none")
	a.Run("delete", "machine/web", "--wait")
	a.Run("adopt", "kvm/web")
	if text := a.Run("export", "web"); !strings.Contains(text, image) {
		t.Errorf("its image is not %s:\n%s", image, text)
	}
	a.Run("harvest", "destroyed")
	// P28: a released guest keeps its image, and is hostler's with its files
	// after its adoption.
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
