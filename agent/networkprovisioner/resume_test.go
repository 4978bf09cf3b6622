package networkprovisioner

import (
	"errors"
	"slices"
	"testing"
	"time"

	"hostler/hostnet"
	"hostler/hostnet/guard"
)

// A worker without networks tries again to start a paused DHCP client, and is
// idle once the client runs.
func TestPausedClientsAreResumed(t *testing.T) {
	r := newRig(t, Observed{})
	r.paused, r.resumeErr = true, errors.New("no memory")
	var waits []time.Duration
	for range 3 {
		next := r.pass()
		if next.IsZero() {
			t.Fatal("no retry is due")
		}
		waits, r.now = append(waits, next.Sub(r.now)), next
	}
	if r.resumes != 3 || waits[0] != time.Second || waits[2] != 4*time.Second {
		t.Errorf("%d attempts with the delays %v", r.resumes, waits)
	}
	r.paused, r.resumeErr = false, nil
	for range 2 {
		if next := r.pass(); !next.IsZero() {
			t.Errorf("a retry is due at %s", next)
		}
	}
	if r.resumes != 4 {
		t.Errorf("%d attempts, the last of an idle worker", r.resumes)
	}
}

// A worker without networks resumes the client of a change that was armed.
func TestTheClientOfAnArmedChangeIsResumed(t *testing.T) {
	r := newRig(t, Observed{})
	r.armed = "network/lan"
	if next := r.pass(); !next.IsZero() || r.resumes != 0 {
		t.Errorf("armed: %d attempts, the next pass is due at %s", r.resumes, next)
	}
	r.armed = ""
	if r.pass(); r.resumes != 1 {
		t.Errorf("%d attempts", r.resumes)
	}
}

// A change ends the DHCP clients of its links only once it is armed, and not if
// another change is armed.
func TestClientsEndWhenTheChangeIsArmed(t *testing.T) {
	r := newRig(t, Observed{Host: hostnet.Observed{Links: []hostnet.Link{{Name: "eth0"}}}})
	steps := []hostnet.Step{{Op: hostnet.Enslave, Link: "eth0", Bridge: "br-lan"}}
	op := Operation{Op: opLinks, Links: steps, Change: &guard.Change{Object: "network/lan", Steps: steps}}
	r.armed = "network/dmz"
	if err := r.worker.change(t.Context(), op); err != nil || len(r.applied) > 0 {
		t.Errorf("during another change: %q, %v", r.applied, err)
	}
	r.armed = ""
	if err := r.worker.change(t.Context(), op); err != nil || !slices.Equal(r.applied, []string{"pause eth0 during network/lan", steps[0].String()}) {
		t.Errorf("%q, %v", r.applied, err)
	}
}
