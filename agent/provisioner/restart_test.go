package provisioner_test

import (
	"errors"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
)

// A change that needs a restart counts as made only when the instance runs with
// it, however the operation is cut short (I3).
func TestChangesOfRestartsThatAreCutShort(t *testing.T) {
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
			r.declare("web", func(m *spec.MachineRecord) { m.Machine.Nesting, m.Allow = true, []string{"restart"} })
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
func TestChangesOfRestartsThatAreRefused(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	before, _ := r.fake.Get("web")
	r.fake.Fail(brokertest.Update, "web", -1, fault.New(fault.NeedsOperator, "there is no such thing"))
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.Nesting, m.Allow = true, []string{"restart"} })
	r.awaitState("web", spec.MachineError)
	r.declare("web")
	r.awaitState("web", spec.MachineRunning)
	r.awaitPass()
	if now, _ := r.fake.Get("web"); now.PID != before.PID || now.Nesting {
		t.Errorf("it is %+v", now)
	}
}
