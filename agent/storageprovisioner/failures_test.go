package storageprovisioner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/storage"
)

// torn is a volume that has to grow and be detached, and both fail.
func torn(t *testing.T) *rig {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	r.machine("web", spec.Attachment{Volume: "data"})
	r.pass()
	r.volume("data", spec.Volume{Size: 100 << 40})
	r.machine("web")
	r.host.fails["grow volume/data"] = errors.New("no space")
	r.host.fails["detach volume/data"] = storage.Busy("/dev/loop1", "", nil)
	return r
}

// S18, S19: two failing actions of a volume have separate schedules, also
// across restarts, and a pass ends.
func TestScheduleOfTwoFailingActions(t *testing.T) {
	r := torn(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := r.w.converge(ctx); err != nil || ctx.Err() != nil {
		t.Fatalf("the pass does not end: %v, %d statuses of the volume", err, len(r.store.states["volume/data"]))
	}
	var waits []string
	for attempt := 1; attempt <= 8; attempt++ {
		if s := r.status(spec.KindVolume, "data"); s.Attempts.Count != attempt || s.State != spec.StorageDetaching {
			t.Errorf("attempt %d: %+v", attempt, s)
		}
		calls := strings.Join(r.host.did(), "\n")
		for _, call := range []string{"grow volume/data", "detach volume/data"} {
			if n := strings.Count(calls, call); n != attempt {
				t.Errorf("attempt %d: %d times %s", attempt, n, call)
			}
		}
		r.restart()
		next := r.pass()
		waits = append(waits, next.Sub(r.now).String())
		r.now = next
		r.pass()
	}
	equal(t, strings.Join(waits, " "), "30s 1m0s 2m0s 4m0s 8m0s 16m0s 30m0s 30m0s")
}

// S18: if one of two failures ends, the status shows the other with its own
// attempts; a new generation forgets both.
func TestOneOfTwoFailuresEnds(t *testing.T) {
	for _, c := range []struct{ ends, left string }{{"detach", "no space"}, {"grow", "is in use"}} {
		r := torn(t)
		r.now = r.pass()
		r.pass()
		delete(r.host.fails, c.ends+" volume/data")
		r.now = r.now.Add(time.Minute)
		next := r.pass()
		if s := r.status(spec.KindVolume, "data"); s.Attempts.Count != 3 || !strings.Contains(s.Message, c.left) || len(s.Others) != 0 || !next.Equal(r.now.Add(2*time.Minute)) {
			t.Errorf("after the end of %s, next %s: %+v", c.ends, next.Sub(r.now), s)
		}
		r.host.fails = map[string]error{}
		r.volume("data", spec.Volume{Size: 200 << 40})
		if !r.pass().IsZero() {
			t.Errorf("something is left: %+v", r.status(spec.KindVolume, "data"))
		}
		if s := r.status(spec.KindVolume, "data"); s.Message != "" || s.Attempts.Count != 0 || s.State != spec.StorageDetached {
			t.Errorf("after both: %+v", s)
		}
	}
}

// Z19: a step that succeeded in a pass and is planned again has failed once; a
// step that failed is neither tried nor reported again in the pass.
func TestNothingIsDoneTwiceInAPass(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	l, err := r.w.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.steps = Plan(l.desired, l.observed, l.policy)
	done := map[string]error{}
	var got []string
	for range 3 {
		acted, err := r.w.act(t.Context(), &l, done)
		s := r.status(spec.KindVolume, "data")
		got = append(got, fmt.Sprint(acted, err, s.Attempts.Count, len(r.host.did())))
	}
	equal(t, strings.Join(got, "\n"), "true <nil> 0 1\ntrue <nil> 1 1\nfalse <nil> 1 1")
	if next := nextRetry(l); !next.Equal(r.now.Add(leastWait)) {
		t.Errorf("what was left over is looked at again at %v", next)
	}
}
