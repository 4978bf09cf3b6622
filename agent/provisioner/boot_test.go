package provisioner_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
)

// booted writes the host's record as the agent does after a boot.
func (r *rig) booted(id string) {
	r.t.Helper()
	r.write(state.Write{
		ID: state.ID{Kind: spec.KindHost, Name: spec.HostName}, Revision: r.revisionOf(spec.KindHost, spec.HostName), Life: state.Alive,
		Spec: spec.Encode(spec.HostRecord{Config: spec.DefaultConfig(), Facts: spec.HostFacts{Boot: id}}),
	})
}

// A machine that the hypervisor started with the host has that start time, its
// present address, the time at which it was found ready, and an event. A
// machine that hostler starts has no such event.
func TestMachineStartedByTheHypervisorIsRecorded(t *testing.T) {
	r := newRig(t)
	r.booted("first")
	r.declare("web")
	r.declare("late")
	stop := r.start()
	before := r.awaitState("web", spec.MachineRunning)
	r.awaitState("late", spec.MachineRunning)
	r.awaitPass()
	stop()

	r.booted("second")
	started := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	r.fake.Change("web", func(i *containerbroker.Instance) { i.Started, i.Addresses = started, []string{"10.0.0.99"} })
	r.fake.Kill("late")
	waits := r.fake.Calls(brokertest.WaitReady)
	r.start()
	r.eventually("web is ready anew", func() bool {
		s, _ := r.status("web")
		return s.State == spec.MachineRunning && s.StartedAt != nil && s.StartedAt.Equal(started) && slices.Equal(s.Addresses, []string{"10.0.0.99"})
	})
	r.awaitState("late", spec.MachineRunning)
	r.awaitPass()
	if n := r.fake.Calls(brokertest.WaitReady) - waits; n != 2 {
		t.Errorf("%d looks whether a machine is ready, want one each", n)
	}
	since := func(s spec.MachineStatus) time.Time {
		i := slices.IndexFunc(s.Conditions, func(c spec.Condition) bool { return c.Type == spec.ConditionReady })
		return s.Conditions[i].Since
	}
	if now, _ := r.status("web"); !since(now).After(since(before)) {
		t.Errorf("ready since %s, before the boot", since(now))
	}
	for name, want := range map[string]int{"web": 1, "late": 0} {
		events, err := r.store.Events(t.Context(), state.EventQuery{Object: &state.ID{Kind: spec.KindMachine, Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		events = slices.DeleteFunc(events, func(e state.Event) bool { return e.Reason != "HostRestarted" })
		if len(events) != want {
			t.Errorf("%s: %+v", name, events)
		}
	}
}

// After a restart of the host, the status does not show the state from before.
func TestStatusIsUnknownAfterABoot(t *testing.T) {
	made := &spec.InstanceInfo{Name: "web"}
	s := provisioner.Unseen(state.Alive, spec.MachineStatus{State: spec.MachineRunning, Instance: made, Addresses: []string{"10.0.0.7"}})
	if s.State != spec.MachineUnknown || s.Message != "not checked yet since the host started" || s.Addresses != nil || s.Instance != made {
		t.Errorf("%+v", s)
	}
	for _, s := range []spec.MachineStatus{{State: spec.MachinePending, Message: "waiting"}, {State: spec.MachineError}} {
		if got := provisioner.Unseen(state.Alive, s); got.State != s.State || got.Message != s.Message {
			t.Errorf("%+v became %+v", s, got)
		}
	}
}

// A stopped machine does not start with the host, whether it is declared as
// stopped or was stopped with `hostler stop`.
func TestStoppedMachinesDoNotStartWithTheHost(t *testing.T) {
	r := newRig(t)
	r.declare("off", func(m *spec.MachineRecord) { m.Machine.Running = no() })
	r.declare("web")
	r.start()
	r.awaitState("off", spec.MachineStopped)
	r.awaitState("web", spec.MachineRunning)
	autostart := func(name string) bool { i, _ := r.fake.Get(name); return i.Autostart }
	if autostart("off") || !autostart("web") {
		t.Errorf("off starts with the host: %v, web: %v", autostart("off"), autostart("web"))
	}
	r.declare("web", func(m *spec.MachineRecord) { m.PowerOverride = no() })
	r.awaitState("web", spec.MachineStopped)
	r.eventually("web does not start with the host", func() bool { return !autostart("web") })
	r.declare("web")
	r.awaitState("web", spec.MachineRunning)
	r.eventually("web starts with the host again", func() bool { return autostart("web") })
}

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
	if !s.NotAutostarted() || !strings.Contains(s.Message, "hostler start rests") {
		t.Errorf("status %+v", s)
	}
	stop()
	stop = r.start() // restarts only the agent
	r.awaitPass()
	if s := r.awaitState("rests", spec.MachineStopped); !s.NotAutostarted() {
		t.Errorf("status %+v", s)
	}
	// The user wants the machine to run even if its start fails.
	r.fake.Fail(brokertest.SetPower, "rests", 1, errors.New("not now"))
	r.declare("rests", rests, func(m *spec.MachineRecord) { m.PowerOverride = new(true) })
	if s := r.awaitState("rests", spec.MachineRunning); s.NotAutostarted() {
		t.Errorf("status %+v", s)
	}
	r.awaitPass()
	boot("third")
	r.awaitState("starts", spec.MachineRunning)
	r.awaitState("rests", spec.MachineStopped)
}
