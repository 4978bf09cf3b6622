package provisioner_test

import (
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
)

// P15: a machine whose cloud-init failed is started again when it is found
// stopped, and its error stays; one that cannot be started waits for a person.
func TestP15FailedMachineFoundStopped(t *testing.T) {
	r := newRig(t)
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.Running = no() })
	r.declare("db")
	stop := r.start()
	r.awaitState("web", spec.MachineStopped)
	r.awaitState("db", spec.MachineRunning)
	r.fake.BreakCloudInit("web", "unknown module frobnicate")
	r.declare("web")
	r.awaitState("web", spec.MachineError)
	stop()

	for _, name := range []string{"web", "db"} {
		r.fake.Change(name, func(i *containerbroker.Instance) { i.Status = containerbroker.StatusStopped })
	}
	r.fake.Fail(brokertest.SetPower, "db", 1, fault.New(fault.NeedsOperator, "the disk is full"))
	r.start()
	r.eventually("web runs again", func() bool { i, _ := r.fake.Get("web"); return i.Status == containerbroker.StatusRunning })
	if s := r.awaitState("db", spec.MachineError); !strings.Contains(s.Message, "the disk is full") {
		t.Errorf("message %q", s.Message)
	}
	starts := r.fake.Calls(brokertest.SetPower)
	r.awaitPass()
	if s := r.awaitState("web", spec.MachineError); !strings.Contains(s.Message, "unknown module frobnicate") {
		t.Errorf("message %q", s.Message)
	}
	if i, _ := r.fake.Get("db"); i.Status != containerbroker.StatusStopped || r.fake.Calls(brokertest.SetPower) != starts {
		t.Errorf("what cannot be started is tried again: %s", r.fake)
	}
}
