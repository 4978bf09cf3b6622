package provisioner_test

import (
	"testing"

	"hostler/agent/spec"
	"hostler/containerbroker"
)

// A frozen guest stays frozen until the user asks for each resume (P16), and
// its status gives the hypervisor's reason.
func TestAFrozenInstanceStaysFrozenUntilARetry(t *testing.T) {
	r := newRig(t)
	asked := func(n int) func(*spec.MachineRecord) {
		return func(m *spec.MachineRecord) { m.RetryRequest = n }
	}
	freeze := func(why, says string) {
		t.Helper()
		r.fake.Change("web", func(i *containerbroker.Instance) {
			i.Status, i.Standstill = containerbroker.StatusFrozen, why
		})
		if s := r.awaitState("web", spec.MachineStopped); s.Message != says {
			t.Errorf("status %+v", s)
		}
		r.awaitPass()
	}
	stands := func(when string) {
		t.Helper()
		r.awaitPass()
		if i, _ := r.fake.Get("web"); i.Status != containerbroker.StatusFrozen {
			t.Fatalf("%s: it is %s", when, i.Status)
		}
	}
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.declare("web", asked(1))
	r.awaitPass()
	r.awaitState("web", spec.MachineRunning)
	freeze("", "frozen outside hostler")
	stands("asked for while it ran")
	r.declare("web", asked(1), func(m *spec.MachineRecord) { m.Machine.Retain = true })
	stands("declared otherwise")
	r.declare("web", asked(2))
	r.awaitState("web", spec.MachineRunning)
	freeze("the pool is full", "the pool is full")
	stands("frozen again")
}
