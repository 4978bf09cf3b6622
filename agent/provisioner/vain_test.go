package provisioner_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
)

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
func TestRestartsInVainAreToldOf(t *testing.T) {
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
	allowed := func(m *spec.MachineRecord) { m.Machine.CPUs, m.Allow = 2, []string{"restart"} }
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
	// When the change is made, the report ends, and later drift is corrected.
	hypervisor.refuses.Store(false)
	r.fake.Change("web", func(*containerbroker.Instance) {})
	r.eventually("the restart to be forgotten", func() bool {
		s, _ := r.status("web")
		return s.State == spec.MachineRunning && s.RestartedFor == nil
	})
	hypervisor.refuses.Store(true)
	r.fake.Change("web", func(*containerbroker.Instance) {})
	r.eventually("the restart for what was changed by hand", func() bool { return restarts() == 3 })
	r.awaitState("web", spec.MachineError)
}
