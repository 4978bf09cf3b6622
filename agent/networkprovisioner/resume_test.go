package networkprovisioner

import (
	"errors"
	"testing"
	"time"
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
