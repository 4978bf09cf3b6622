package containersetup_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

func (r *rig) machine(name string) (s spec.MachineStatus) {
	r.t.Helper()
	o, err := r.store.Get(context.Background(), state.ID{Kind: spec.KindMachine, Name: name})
	if err == nil && len(o.Status) > 0 {
		err = json.Unmarshal(o.Status, &s)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// While the host is not ready for a type, none of its machines is reported as
// running: machines with an instance are unknown, the others pending.
func TestMachinesOfATypeThatIsNotReady(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"made", "new"} {
		r.declare(name, spec.LXD)
	}
	made := spec.MachineStatus{State: spec.MachineRunning, Instance: &spec.InstanceInfo{Name: "made"}}
	r.declare("guest", spec.KVM)
	for _, name := range []string{"made", "guest"} {
		id := state.ID{Kind: spec.KindMachine, Name: name}
		if _, err := r.store.Write(t.Context(), state.Atomic, state.Write{ID: id, Revision: state.AnyRevision, Status: spec.Encode(made)}); err != nil {
			t.Fatal(err)
		}
	}
	r.hosts[spec.KVM].satisfied = true
	// LXD's preparation continues until the end of the test.
	r.hosts[spec.LXD].block = make(chan struct{})
	defer close(r.hosts[spec.LXD].block)
	r.start()
	r.eventually("made is unknown", func() bool { return r.machine("made").State == spec.MachineUnknown })
	r.eventually("new is told to wait", func() bool { return strings.Contains(r.machine("new").Message, "packages are missing") })
	if s := r.machine("made"); s.Instance == nil || !strings.Contains(s.Message, "ready for lxd machines: packages are missing") {
		t.Errorf("made: %+v", s)
	}
	if s := r.machine("new"); s.State != spec.MachinePending {
		t.Errorf("new: %+v", s)
	}
	r.eventually("kvm is ready", func() bool { return r.works[spec.KVM].running() })
	if s := r.machine("guest"); s.State != spec.MachineRunning {
		t.Errorf("guest, whose type is ready: %+v", s)
	}
}

// A machine's status shows the host's progress, and why the host is not ready.
func TestMachinesShowTheHostsProgress(t *testing.T) {
	r := newRig(t)
	r.declare("web", spec.LXD)
	r.hosts[spec.LXD].block = make(chan struct{})
	r.hosts[spec.LXD].fail = []error{fault.New(fault.Transient, "no mirror answers")}
	r.start()
	says := func(text string) {
		t.Helper()
		r.eventually("the machine says: "+text, func() bool { return strings.Contains(r.machine("web").Message, text) })
	}
	says("ready for lxd machines: packages are missing")
	close(r.hosts[spec.LXD].block)
	says("ready for lxd machines: no mirror answers")
}
