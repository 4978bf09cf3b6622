package provisioner_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
)

// A change that needs a restart counts as made only when the instance runs with
// it, however the operation is cut short (I3).
func TestInterruptedRestartIsRepeatedUntilTheChangeIsMade(t *testing.T) {
	for _, failing := range []brokertest.Method{brokertest.Update, brokertest.SetPower} {
		for _, lost := range []bool{false, true} {
			r := newRig(t)
			r.config.RetryDelay = 100 * time.Millisecond
			r.declare("web")
			r.start()
			r.awaitState("web", spec.MachineRunning)
			before, _ := r.fake.Get("web")
			powers := r.fake.Calls(brokertest.SetPower)
			fail := r.fake.Fail
			if lost {
				fail = r.fake.LoseReplies
			}
			fail(failing, "web", 1, errors.New("not now"))
			r.declare("web", func(m *spec.MachineRecord) { m.Machine.Nesting = true; m.Consent([]string{"restart"}) })
			r.eventually("the change and the restart after "+string(failing)+map[bool]string{true: ", its reply lost"}[lost], func() bool {
				now, _ := r.fake.Get("web")
				return now.Nesting && now.PID != before.PID && now.PID != 0 && r.fake.Calls(brokertest.SetPower) > powers
			})
			s := r.awaitState("web", spec.MachineRunning)
			if s.Deaths != 0 && !lost {
				t.Errorf("%s (lost reply %v): counted as %d deaths", failing, lost, s.Deaths)
			}
		}
	}
}

// A change that cannot be made leaves the instance running as before, also when
// the change is no longer declared.
func TestRefusedChangeLeavesTheInstanceRunning(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	before, _ := r.fake.Get("web")
	r.fake.Fail(brokertest.Update, "web", -1, fault.New(fault.NeedsOperator, "there is no such thing"))
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.Nesting = true; m.Consent([]string{"restart"}) })
	r.awaitState("web", spec.MachineError)
	r.declare("web")
	r.awaitState("web", spec.MachineRunning)
	r.awaitPass()
	if now, _ := r.fake.Get("web"); now.PID != before.PID || now.Nesting {
		t.Errorf("it is %+v", now)
	}
}

// stubborn is a hypervisor that accepts a change without making it, e.g.
// because it computes the setting from an undeclared setting.
type stubborn struct {
	*brokertest.Fake
	refuses atomic.Bool
}

func (s *stubborn) Diff(m containerbroker.Machine, i containerbroker.Instance) []containerbroker.Change {
	changes := s.Fake.Diff(m, i)
	if s.refuses.Load() {
		changes = append(changes, containerbroker.Change{Field: "memory", From: "1GiB", To: "2GiB", Impact: containerbroker.ImpactRestart})
	}
	return changes
}

// A restart that did not make its changes is not repeated. The status reports
// this, and the user asks for the next restart (I3, I15).
func TestRestartsWithoutEffectAreReported(t *testing.T) {
	r := newRig(t)
	hypervisor := &stubborn{Fake: r.fake}
	r.differ = hypervisor
	var early atomic.Bool
	r.backend = badStore{Backend: r.store, write: func(w state.Write) error {
		var s spec.MachineStatus
		if len(w.Status) > 0 && json.Unmarshal(w.Status, &s) == nil && s.State == spec.MachineRunning && s.RestartedFor != nil {
			early.Store(true)
		}
		return nil
	}}
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	restarts := func() (n int) {
		for _, op := range r.fake.Operations() {
			if op == "restart web" {
				n++
			}
		}
		return n
	}
	hypervisor.refuses.Store(true)
	allowed := func(m *spec.MachineRecord) { m.Machine.CPUs = 2; m.Consent([]string{"restart"}) }
	r.declare("web", allowed)
	s := r.awaitState("web", spec.MachineError)
	if !strings.Contains(s.Message, "a restart did not change memory") || !strings.Contains(s.Message, "hostler retry machine/web") {
		t.Errorf("the status is %q", s.Message)
	}
	if !spec.Differs(s.Conditions) {
		t.Errorf("it is said to be as declared: %+v", s.Conditions)
	}
	if early.Load() {
		t.Error("it was said to be well before it was seen to have the change")
	}
	// No event causes another restart.
	for range 3 {
		r.fake.Change("web", func(*containerbroker.Instance) {})
		r.awaitPass()
	}
	if n := restarts(); n != 1 {
		t.Errorf("it was restarted %d times", n)
	}
	// The user's request causes one more restart.
	r.declare("web", allowed, func(m *spec.MachineRecord) { m.RetryRequest = 1 })
	r.eventually("another restart", func() bool { return restarts() == 2 })
	r.awaitState("web", spec.MachineError)
	// When the change is made, the report ends, and later drift
	// is corrected with consent.
	hypervisor.refuses.Store(false)
	r.fake.Change("web", func(*containerbroker.Instance) {})
	r.eventually("the restart to be forgotten", func() bool {
		s, _ := r.status("web")
		return s.State == spec.MachineRunning && s.RestartedFor == nil
	})
	hypervisor.refuses.Store(true)
	r.fake.Change("web", func(*containerbroker.Instance) {})
	r.eventually("another consent is asked for", func() bool {
		s, _ := r.status("web")
		return strings.Contains(s.Message, "needs restart") && restarts() == 2
	})
	r.declare("web", allowed, allowed)
	r.eventually("the restart for what was changed by hand", func() bool { return restarts() == 3 })
	r.awaitState("web", spec.MachineError)
}

// A restart that was asked for is made once, also if its end is not recorded.
func TestARestartIsMadeOnce(t *testing.T) {
	r := newRig(t)
	r.config.RetryDelay = 10 * time.Millisecond
	var full atomic.Bool
	r.backend = badStore{Backend: r.store, write: func(w state.Write) error {
		if full.Load() && w.Kind == spec.KindMachine {
			return fault.New(fault.Transient, "the disk is full")
		}
		return nil
	}}
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	before, _ := r.fake.Get("web")
	restarts := func() (n int) {
		for _, op := range r.fake.Operations() {
			if op == "restart web" {
				n++
			}
		}
		return n
	}
	r.fake.LoseReplies(brokertest.SetPower, "web", 1, errors.New("the connection broke"))
	r.declare("web", func(m *spec.MachineRecord) { m.RestartRequest = 1 })
	r.eventually("the restart is recorded", func() bool { s, _ := r.status("web"); return s.RestartsDone == 1 && s.State == spec.MachineRunning })
	if now, _ := r.fake.Get("web"); now.PID == before.PID || restarts() != 1 {
		t.Errorf("restarted %d times", restarts())
	}

	// While the store takes no writes, nothing is restarted and nothing is deleted.
	made, _ := r.fake.Get("web")
	full.Store(true)
	r.declare("web", func(m *spec.MachineRecord) {
		m.RestartRequest, m.Machine.Image = 2, "debian/13"
		m.Consent([]string{"recreate"})
	})
	for range 5 {
		r.fake.Change("web", func(*containerbroker.Instance) {})
		r.awaitPass()
	}
	if now, there := r.fake.Get("web"); !there || now.PID != made.PID {
		t.Errorf("the instance is %+v", now)
	}
	full.Store(false)
	r.eventually("the recreate", func() bool { now, there := r.fake.Get("web"); return there && now.Stamp.Token != made.Stamp.Token })
}

// refusing is a hypervisor that refuses a limit of memory for the running instance,
// which uses more. It may store the limit nevertheless.
type refusing struct {
	*brokertest.Fake
	stores bool
	since  int64 // the instance's process when the limit was declared
}

func (r *refusing) Diff(m containerbroker.Machine, i containerbroker.Instance) []containerbroker.Change {
	changes := r.Fake.Diff(m, i)
	if now, _ := r.Get(i.Name); r.since != 0 && now.PID == r.since {
		changes = append(changes, containerbroker.Change{Field: "memory", From: "2GiB", To: "1GiB", Impact: containerbroker.ImpactLive, Stored: r.stores})
	}
	return changes
}

// refused starts a worker on web, in the given state, whose change is refused and not
// tried again within the test.
func refused(t *testing.T, stores bool, status containerbroker.Status) (*rig, containerbroker.Instance) {
	t.Helper()
	r := newRig(t)
	differ := &refusing{Fake: r.fake, stores: stores}
	r.differ, r.config.RetryDelay = differ, time.Hour
	r.declare("web")
	stop := r.start()
	r.awaitState("web", spec.MachineRunning)
	stop()
	before, _ := r.fake.Get("web")
	differ.since = before.PID
	r.fake.Change("web", func(i *containerbroker.Instance) { i.Status = status })
	r.fake.Fail(brokertest.Update, "web", -1, fault.New(fault.Transient, "the guest uses more memory than that"))
	r.start()
	r.eventually("a refusal", func() bool { s, _ := r.status("web"); return strings.Contains(s.Message, "more memory") })
	return r, before
}

// A restart does not wait for a change that the running instance refuses. If the
// hypervisor has stored the change, the next start makes it.
func TestRefusedChangeHoldsNoRestart(t *testing.T) {
	for _, stores := range []bool{true, false} {
		r, before := refused(t, stores, containerbroker.StatusRunning)
		r.declare("web", func(m *spec.MachineRecord) { m.RestartRequest = 1 })
		r.eventually("the restart", func() bool { now, _ := r.fake.Get("web"); return now.PID != before.PID })
		r.awaitState("web", spec.MachineRunning)
	}
}

// A frozen instance that refuses a change is resumed as asked. A limit below its memory
// in use cannot be set before that, since it frees nothing while it is frozen.
func TestRefusedChangeHoldsNoResume(t *testing.T) {
	r, _ := refused(t, false, containerbroker.StatusFrozen)
	r.declare("web", func(m *spec.MachineRecord) { m.RetryRequest = 1 })
	r.eventually("the resume", func() bool { now, _ := r.fake.Get("web"); return now.Status == containerbroker.StatusRunning })
}

// A guest may have other addresses after its restart, so those of before go with it.
func TestAddressesEndWithARestart(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	if s := r.awaitState("web", spec.MachineRunning); len(s.Addresses) == 0 {
		t.Fatalf("it has no address: %+v", s)
	}
	r.fake.Block(brokertest.WaitReady, "")
	calls := r.fake.Calls(brokertest.WaitReady)
	r.declare("web", func(m *spec.MachineRecord) { m.RestartRequest = 1 })
	r.eventually("the wait after the restart", func() bool { return r.fake.Calls(brokertest.WaitReady) > calls })
	if s, _ := r.status("web"); len(s.Addresses) > 0 {
		t.Errorf("it still has %q", s.Addresses)
	}
}
