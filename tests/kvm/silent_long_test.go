//go:build integration && long

package kvm

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"hostler/tests/harness"
)

// F8: libvirt answers calls and sends no events for minutes. The next full
// listing finds the changes, and no guest is disturbed.
func TestNoEventForMinutes(t *testing.T) {
	w := open(t)
	s, p, a, image := w.s, w.p, w.a, w.image
	a.Start()
	guest := "{type: kvm, image: \"" + image + "\", memory: 512MiB}\n"
	p.Mute()
	a.Apply("site", "version: 1\nmachines:\n  steady: "+guest+"  web: "+guest)
	steady, dead := s.Guest("steady"), s.Guest("web")
	if err := syscall.Kill(dead, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.Calls()
	began := time.Now()
	harness.Wait(t, "the guest to run again", 4*time.Minute, func() error {
		if now := s.Process("web"); now == 0 || now == dead {
			return fmt.Errorf("process %d, was %d", now, dead)
		}
		return nil
	})
	t.Logf("outcome: found without an event after %s", time.Since(began).Round(time.Second))
	a.Run("wait", "declaration/site", "--for", "ready", "--timeout", "2m")
	if now := s.Guest("steady"); now != steady {
		t.Errorf("the guest that nobody touched was process %d and is %d", steady, now)
	}
	if names := s.Names(); len(names) != 2 {
		t.Errorf("domains %v", names)
	}
	p.Heal()
	a.Run("delete", "declaration/site", "--wait", "--timeout", "2m")
	if names, files := s.Names(), s.Files(); len(names)+len(files) != 0 {
		t.Errorf("left behind: domains %v, files %v", names, files)
	}
}
