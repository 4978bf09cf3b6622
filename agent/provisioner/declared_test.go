package provisioner_test

import (
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
)

// A declaration that the driver refuses, e.g. because there are too many keys for
// user-data, is the error of a machine that was made before. Its instance runs on,
// and the next declaration takes effect.
func TestARefusedDeclarationIsReported(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.declare("web", func(m *spec.MachineRecord) {
		m.Machine.CPUs, m.Machine.CloudInit.UserData = 2, "not of cloud-init"
	})
	if s := r.awaitState("web", spec.MachineError); !strings.Contains(s.Message, "cannot use user-data") {
		t.Errorf("the status is %q", s.Message)
	}
	tries := r.fake.Calls(brokertest.Update)
	for range 3 {
		r.awaitPass()
	}
	if now, _ := r.fake.Get("web"); now.Status != containerbroker.StatusRunning || r.fake.Calls(brokertest.Update) != tries {
		t.Errorf("it is %s after %d updates, before %d", now.Status, r.fake.Calls(brokertest.Update), tries)
	}
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.CPUs = 2 })
	r.awaitState("web", spec.MachineRunning)
	r.eventually("the next declaration", func() bool { now, _ := r.fake.Get("web"); return now.CPUs == 2 })
}
