package provisioner_test

import (
	"errors"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker/brokertest"
)

// A machine without autostart stays stopped after a restart of the host until
// the user starts it. Within a boot it is kept running as usual.
func TestNoAutostartRestsAfterABoot(t *testing.T) {
	r := newRig(t)
	// The agent reads the boot id; a provisioner's unit may not see the kernel's
	// files.
	config := spec.DefaultConfig()
	config.RetryDelay, config.TransientRetryInterval = spec.Duration(r.config.RetryDelay), spec.Duration(r.config.TransientRetryInterval)
	booted := func(id string) {
		r.write(state.Write{
			ID: state.ID{Kind: spec.KindHost, Name: spec.HostName}, Revision: r.revisionOf(spec.KindHost, spec.HostName), Life: state.Alive,
			Spec: spec.Encode(spec.HostRecord{Config: config, Facts: spec.HostFacts{Boot: id}}),
		})
	}
	booted("first")
	rests := func(m *spec.MachineRecord) { m.Machine.Autostart = no() }
	r.declare("rests", rests)
	r.declare("starts")
	stop := r.start()
	r.awaitState("rests", spec.MachineRunning)
	r.awaitState("starts", spec.MachineRunning)
	r.fake.Kill("rests")
	r.eventually("a start within the boot", func() bool { return r.fake.Calls(brokertest.SetPower) == 3 })
	r.awaitState("rests", spec.MachineRunning)
	r.awaitPass()
	stop()

	boot := func(name string) {
		stop()
		r.fake.Kill("rests")
		r.fake.Kill("starts")
		booted(name)
		stop = r.start()
	}
	boot("second")
	r.awaitState("starts", spec.MachineRunning)
	s := r.awaitState("rests", spec.MachineStopped)
	if !s.Rests() || !strings.Contains(s.Message, "hostler start rests") {
		t.Errorf("status %+v", s)
	}
	stop()
	stop = r.start() // restarts only the agent
	r.awaitPass()
	if s := r.awaitState("rests", spec.MachineStopped); !s.Rests() {
		t.Errorf("status %+v", s)
	}
	// The user wants the machine to run even if its start fails.
	r.fake.Fail(brokertest.SetPower, "rests", 1, errors.New("not now"))
	r.declare("rests", rests, func(m *spec.MachineRecord) { m.PowerOverride = new(true) })
	if s := r.awaitState("rests", spec.MachineRunning); s.Rests() {
		t.Errorf("status %+v", s)
	}
	r.awaitPass()
	boot("third")
	r.awaitState("starts", spec.MachineRunning)
	r.awaitState("rests", spec.MachineStopped)
}
