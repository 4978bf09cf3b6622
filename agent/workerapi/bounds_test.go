package workerapi

import (
	"fmt"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/state/statetest"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
)

// A provisioner's unit has no network access, not even through the agent.
// Attack: API
func TestAProvisionerGetsOnlyImagesThatAMachineOfItsTypeNames(t *testing.T) {
	b, l := workerBench(t)
	const shadow = "file:/etc/shadow#sha256=0000000000000000000000000000000000000000000000000000000000000000"
	declareMachine(t, l, "web", spec.LXD)
	declareMachine(t, l, "vm", spec.KVM, func(r *spec.MachineRecord) { r.Machine.Image = "debian/11" })
	ensure := func(containerType, reference string) error {
		_, err := b.worker(t, containerType).EnsureImage(t.Context(), reference, func(string, int) {})
		return err
	}
	for _, reference := range []string{shadow, "https://evil.example/image#sha256=00", "debian/11", "debian/12 ", "debian"} {
		faulttest.Want(t, ensure("lxd", reference), fault.Forbidden, "no lxd machine")
	}
	for containerType, reference := range map[string]string{"lxd": "debian/12", "kvm": "debian/11"} {
		if err := ensure(containerType, reference); err != nil {
			t.Errorf("%s: %v", containerType, err)
		}
	}
	// A provisioner writes statuses itself, so they do not count as declared
	// images.
	setStatus(t, l, "web", spec.MachineStatus{State: spec.MachineRunning, Instance: &spec.InstanceInfo{Name: "web", Image: shadow}})
	faulttest.Want(t, ensure("lxd", shadow), fault.Forbidden)
	// After a change or removal of its declaration, a machine no longer names its
	// image.
	statetest.Write(t, l, state.Write{ID: machineID("web"), Revision: state.AnyRevision, Spec: spec.Encode(spec.MachineRecord{Machine: spec.Machine{Type: spec.LXD, Image: shadow}})})
	faulttest.Want(t, ensure("lxd", "debian/12"), fault.Forbidden)
	if err := ensure("lxd", shadow); err != nil {
		t.Error(err)
	}
	statetest.Write(t, l, state.Write{ID: machineID("vm"), Revision: state.AnyRevision, Delete: true})
	faulttest.Want(t, ensure("kvm", "debian/11"), fault.Forbidden)
}

// Attack: API
func TestAStatusThatIsLongerThanItsBoundIsRefused(t *testing.T) {
	b, l := workerBench(t)
	o := declareMachine(t, l, "web", spec.LXD)
	s := b.worker(t, "lxd")
	write := func(mode state.Mode, length int) error {
		status := spec.Encode(spec.MachineStatus{State: spec.MachinePending})
		long := spec.Encode(spec.MachineStatus{State: spec.MachinePending, Message: strings.Repeat("x", length-len(status)-len(`,"message":""`))})
		results, err := s.Write(t.Context(), mode, state.Write{ID: o.ID, Revision: state.AnyRevision, Status: long})
		if err == nil {
			err = results[0].Err
		}
		return err
	}
	for _, mode := range []state.Mode{state.Atomic, state.Each} {
		if err := write(mode, 60<<10); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		faulttest.Want(t, write(mode, 65<<10), fault.Invalid, "machine/web", "65536 bytes")
		faulttest.Want(t, write(mode, 12<<20), fault.Invalid, "65536 bytes")
	}
}

// Attack: API
func TestAnEventAboutAMachineThatIsNotThereIsRefused(t *testing.T) {
	b, l := workerBench(t)
	declareMachine(t, l, "web", spec.LXD)
	declareMachine(t, l, "vm", spec.KVM)
	statetest.Write(t, l, state.Write{ID: id(spec.KindContainerType, "lxd")})
	s := b.worker(t, "lxd")
	for _, about := range []state.ID{machineID("absent"), machineID("vm"), id(spec.KindContainerType, "kvm"), id(spec.KindNetwork, "absent"), id(spec.KindHost, "host")} {
		faulttest.Want(t, s.Record(t.Context(), state.Event{Object: about, Reason: "Failed"}), fault.NotFound)
	}
	for _, about := range []state.ID{machineID("web"), id(spec.KindContainerType, "lxd")} {
		if err := s.Record(t.Context(), state.Event{Object: about, Reason: "Started"}); err != nil {
			t.Errorf("%v: %v", about, err)
		}
	}
	if events, err := l.Events(t.Context(), state.EventQuery{}); err != nil || len(events) != 2 {
		t.Errorf("recorded: %v, %v", events, err)
	}
}

// Every plan reads all open intents.
// Attack: API
func TestTheOpenIntentsOfAMachineAreBounded(t *testing.T) {
	b, l := workerBench(t)
	for _, name := range []string{"web", "db"} {
		declareMachine(t, l, name, spec.LXD)
	}
	s := b.worker(t, "lxd")
	begin := func(n int, name, action string) error {
		return s.Begin(t.Context(), state.Intent{Token: fmt.Sprintf("%s-%d", name, n), Object: machineID(name), Action: action})
	}
	faulttest.Want(t, begin(0, "web", strings.Repeat("x", 1<<20)), fault.Invalid, "longer than 32 bytes")
	for n := range maxIntents {
		if err := begin(n, "web", "create"); err != nil {
			t.Fatal(err)
		}
	}
	faulttest.Want(t, begin(maxIntents, "web", "create"), fault.Transient, "machine/web", "1100 open intents")
	if err := begin(0, "db", "create"); err != nil {
		t.Error(err)
	}
	if err := s.End(t.Context(), "web-0"); err != nil {
		t.Fatal(err)
	}
	if err := begin(maxIntents, "web", "create"); err != nil {
		t.Error(err)
	}
}
