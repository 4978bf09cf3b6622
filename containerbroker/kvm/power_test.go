package kvm

import (
	"strings"
	"testing"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
)

// The listing explains a guest that was paused or suspended other than by an
// operator, with libvirt's reason and how to continue it.
func TestPausedGuestsAreExplained(t *testing.T) {
	for name, c := range map[string]struct {
		state  libvirt.DomainState
		reason libvirt.DomainPausedReason
		status containerbroker.Status
		says   []string // none: no explanation
	}{
		"runs":      {libvirt.DomainRunning, 5, containerbroker.StatusRunning, nil},
		"by hand":   {libvirt.DomainPaused, libvirt.DomainPausedUser, containerbroker.StatusFrozen, nil},
		"starts":    {libvirt.DomainPaused, libvirt.DomainPausedStartingUp, containerbroker.StatusBusy, nil},
		"I/O error": {libvirt.DomainPaused, libvirt.DomainPausedIoerror, containerbroker.StatusFrozen, []string{"I/O error", "full?", "`hostler start web`"}},
		"crashed":   {libvirt.DomainPaused, libvirt.DomainPausedCrashed, containerbroker.StatusFrozen, []string{"crashed"}},
		"suspended": {libvirt.DomainPmsuspended, 0, containerbroker.StatusFrozen, []string{"suspended to RAM", "`hostler start web`"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := standstill(int32(c.state), int32(c.reason), "web")
			if (got == "") != (len(c.says) == 0) || statusOf(int32(c.state), int32(c.reason)) != c.status {
				t.Errorf("%s: %q", statusOf(int32(c.state), int32(c.reason)), got)
			}
			for _, part := range c.says {
				if !strings.Contains(got, part) {
					t.Errorf("%q says nothing of %s", got, part)
				}
			}
		})
	}
}
