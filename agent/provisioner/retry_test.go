package provisioner_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
)

// P36: whatever the kind of a failure and the failed operation, the operation
// is not repeated before its delay, and passes in between change nothing.
func TestP36EveryKindOfFailureHasADelay(t *testing.T) {
	kinds := []fault.Kind{
		fault.Transient, fault.NeedsOperator, fault.Invalid, fault.Conflict, fault.NotFound, fault.NotReady, fault.Forbidden,
	}
	methods := map[brokertest.Method]func(*rig){
		brokertest.EnsureImage: func(r *rig) { r.declare("web", func(m *spec.MachineRecord) { m.Machine.Image = "debian/13" }) },
		brokertest.Create:      func(r *rig) { r.declare("web", func(m *spec.MachineRecord) { m.Machine.Image = "debian/13" }) },
		brokertest.SetPower:    func(r *rig) { r.declare("web", func(m *spec.MachineRecord) { m.RestartRequest++ }) },
		brokertest.WaitReady:   func(r *rig) { r.declare("web", func(m *spec.MachineRecord) { m.RestartRequest++ }) },
		brokertest.Update:      func(r *rig) { r.declare("web", func(m *spec.MachineRecord) { m.Machine.CPUs = 3 }) },
		brokertest.Delete:      func(r *rig) { r.remove("web") },
		brokertest.Unstamp: func(r *rig) {
			r.declare("web", func(m *spec.MachineRecord) { m.Released = true })
			r.remove("web")
		},
	}
	for method, cause := range methods {
		for _, kind := range kinds {
			if method != brokertest.Create && kind != fault.Conflict && kind != fault.Transient {
				continue // Fail treats the kinds alike for all methods
			}
			t.Run(fmt.Sprint(method, " ", kind), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.config.RetryDelay, r.config.TransientRetryInterval = time.Hour, time.Hour
				r.start()
				if method != brokertest.Create && method != brokertest.EnsureImage {
					r.declare("web")
					r.awaitState("web", spec.MachineRunning)
					r.awaitPass()
				}
				r.fake.Forget()
				r.fake.Fail(method, "", -1, fault.New(kind, "it is not to be"))
				cause(r)
				r.eventually("the failure", func() bool {
					s, _ := r.status("web")
					return s.Attempts.Count > 0 && strings.Contains(s.Message, "it is not to be")
				})
				for range 3 {
					r.awaitPass()
				}
				if n := r.fake.Calls(method); n != 1 {
					t.Errorf("%d calls", n)
				}
				if s, _ := r.status("web"); !strings.Contains(s.Message, "it is not to be") {
					t.Errorf("the reason is gone: %+v", s)
				}
			})
		}
	}
}

// P36: a conflict that the listing does not explain is retried after growing
// delays, and is over when its cause is gone.
func TestP36ConflictIsTriedLaterAndLater(t *testing.T) {
	p := provisioner.RetryPolicy{Retries: 2, Delay: 10 * time.Second, Interval: time.Minute}
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	var s spec.MachineStatus
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
		provisioner.Fail(&s, "uid", fault.New(fault.Conflict, "another process has it"), p, now)
		if next := s.Attempts.NextRetry; next == nil || next.Sub(now) < want || next.Sub(now) > want+want/4 {
			t.Errorf("attempt %d: next at %v, want it after %s", s.Attempts.Count, next, want)
		}
		if s.State != spec.MachineError || s.Attempts.ErrorKind != string(fault.Conflict) {
			t.Errorf("status %+v", s)
		}
	}
	r := newRig(t)
	r.fake.Fail(brokertest.Create, "web", 3, fault.New(fault.Conflict, "another process has it"))
	r.declare("web")
	r.start()
	if s := r.awaitState("web", spec.MachineRunning); s.Attempts.Count != 0 || r.fake.Calls(brokertest.Create) != 4 {
		t.Errorf("status %+v after %d creates", s, r.fake.Calls(brokertest.Create))
	}
}

// P36: machines that fail together are not retried at the same time, and their
// later attempts stay apart.
func TestP36RetriesAreSpread(t *testing.T) {
	p := provisioner.RetryPolicy{Retries: 100, Delay: 10 * time.Second, Interval: time.Minute}
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for attempt := range 3 {
		var delays []time.Duration
		for i := range 20 {
			s := spec.MachineStatus{Attempts: spec.Attempts{Count: attempt}}
			provisioner.Fail(&s, fmt.Sprint("uid-", i), errors.New("LXD was restarted"), p, now)
			delays = append(delays, s.Attempts.NextRetry.Sub(now))
		}
		slices.Sort(delays)
		for i := range delays[:len(delays)-5] {
			if delays[i+5]-delays[i] < 100*time.Millisecond {
				t.Errorf("attempt %d: 6 of 20 within 100 ms: %v", attempt, delays)
			}
		}
		if delays[0] < p.Delay || delays[19] > p.Delay+p.Delay/4 {
			t.Errorf("attempt %d: %v", attempt, delays)
		}
	}
}
