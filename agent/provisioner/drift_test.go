package provisioner_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
)

// P15: a machine whose cloud-init failed is started again when it is found
// stopped, and its error stays. A machine whose start failed waits for the
// user.
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

// unheard makes the event stream fail, so that the worker gets no events.
func unheard(r *rig) { r.fake.Fail(brokertest.Events, "", -1, errors.New("the stream is lost")) }

// P15 P17: the drift of a machine whose error waits for the operator is
// corrected without an event, and its error stays.
func TestP17DriftOfAFailedMachine(t *testing.T) {
	r := newRig(t)
	unheard(r)
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.Running = no() })
	r.start()
	r.awaitState("web", spec.MachineStopped)
	r.fake.BreakCloudInit("web", "unknown module frobnicate")
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.CPUs = 2 })
	r.awaitState("web", spec.MachineError)
	for range 2 { // each time it drifts
		r.fake.Change("web", func(i *containerbroker.Instance) { i.CPUs = 7 })
		r.awaitPass()
		r.eventually("the drift is put right", func() bool { i, _ := r.fake.Get("web"); return i.CPUs == 2 })
	}
	if s, _ := r.status("web"); s.State != spec.MachineError || !strings.Contains(s.Message, "unknown module frobnicate") {
		t.Errorf("status %+v", s)
	}
}

// P15 P17: a refused change is not retried with the drift of other fields, and
// drift that cannot be corrected is retried after growing delays.
func TestP17DriftBesideARefusedChange(t *testing.T) {
	r := newRig(t)
	unheard(r)
	r.config.RetryDelay = 300 * time.Millisecond
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.fake.Fail(brokertest.Update, "web", 1, fault.New(fault.Invalid, "a root disk of 7 bytes"))
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.RootDisk = 7 })
	r.awaitState("web", spec.MachineError)
	r.fake.Forget()
	r.fake.Fail(brokertest.Update, "web", 2, errors.New("not now"))
	r.fake.Change("web", func(i *containerbroker.Instance) { i.CPUs = 7 })
	began := time.Now()
	for range 4 {
		r.awaitPass()
	}
	if n := r.fake.Calls(brokertest.Update); n != 1 && time.Since(began) < r.config.RetryDelay {
		t.Errorf("%d updates without a pause", n)
	}
	r.eventually("the drift is put right", func() bool { i, _ := r.fake.Get("web"); return i.CPUs == 0 })
	s, _ := r.status("web")
	if s.State != spec.MachineError || !strings.Contains(s.Message, "a root disk of 7 bytes") {
		t.Errorf("status %+v", s)
	}
	if ops := r.fake.Operations(); !slices.Equal(ops, []string{"update web cpus"}) {
		t.Errorf("operations %v", ops)
	}
}
