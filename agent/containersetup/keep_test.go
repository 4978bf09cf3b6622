package containersetup_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// reasons are those of the events of type/lxd.
func (r *rig) reasons() (all []string) {
	r.t.Helper()
	events, err := r.store.Events(r.t.Context(), state.EventQuery{Object: &state.ID{Kind: spec.KindContainerType, Name: "lxd"}})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range events {
		all = append(all, e.Reason)
	}
	return all
}

// A provisioner that ended, however it did, is found within the time between
// two looks and started again, and people are told.
func TestProvisionerThatEndedIsStartedAgain(t *testing.T) {
	r := newRig(t)
	unit := &fallible{}
	r.lxd, r.lookEvery = unit, 20*time.Millisecond
	r.declare("web", spec.LXD)
	r.start()
	r.eventually("it runs", unit.running)
	unit.set(false)
	r.eventually("it runs again", unit.running)
	r.eventually("people are told", func() bool {
		all := r.reasons()
		return slices.Contains(all, "ProvisionerEnded") && slices.Contains(all, "ProvisionerStarted")
	})
}

// One that runs is looked at seldom, however much happens, and at once when a
// person asks for it.
func TestProvisionerIsLookedAtWhenAsked(t *testing.T) {
	r := newRig(t)
	unit := &fallible{}
	r.lxd, r.lookEvery = unit, time.Hour
	r.declare("web", spec.LXD)
	r.start()
	r.eventually("it runs", unit.running)
	unit.set(false)
	host := state.Write{
		ID:   state.ID{Kind: spec.KindHost, Name: spec.HostName},
		Spec: spec.Encode(spec.HostRecord{Config: spec.DefaultConfig()}), Life: state.Alive,
	}
	if _, err := r.store.Write(t.Context(), state.Atomic, host); err != nil {
		t.Fatal(err)
	}
	r.declare("guest", spec.KVM) // its readiness shows that the changes were seen
	r.eventually("kvm is ready", func() bool { return r.works[spec.KVM].running() })
	if n := unit.looked(); n != 0 || unit.running() {
		t.Errorf("looked at %d times before anybody asked", n)
	}
	retry := state.Write{
		ID: state.ID{Kind: spec.KindContainerType, Name: "lxd"}, Revision: state.AnyRevision,
		Spec: spec.Encode(spec.TypeRecord{RetryRequest: 1}),
	}
	if _, err := r.store.Write(t.Context(), state.Atomic, retry); err != nil {
		t.Fatal(err)
	}
	r.eventually("it runs again", unit.running)
}

// A unit that cannot be started is told once, and the machines that nobody
// looks after them; it is tried again by itself.
func TestProvisionerThatCannotBeStartedIsTold(t *testing.T) {
	r := newRig(t)
	unit := &fallible{barred: 2}
	r.lxd = unit
	r.declare("web", spec.LXD)
	r.start()
	r.eventually("the machine's message", func() bool {
		return strings.Contains(r.machine("web").Message, "the unit is masked")
	})
	r.eventually("it runs", unit.running)
	r.eventually("people are told", func() bool { return slices.Contains(r.reasons(), "ProvisionerStarted") })
	told := 0
	for _, reason := range r.reasons() {
		if reason == "ProvisionerNotStarted" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// fail writes down the failed attempts of a machine.
func (r *rig) fail(name string, count int) {
	r.t.Helper()
	status := r.machine(name)
	status.Attempts = spec.Attempts{Count: count, ErrorKind: "transient"}
	results, err := r.store.Write(r.t.Context(), state.Each, state.Write{
		ID: state.ID{Kind: spec.KindMachine, Name: name}, Revision: state.AnyRevision, Status: spec.Encode(status),
	})
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// The first failure is cleared after at once, however short before the type was
// made ready; one that comes too soon after it waits for its time, and needs
// nothing else to happen then.
func TestFailuresThatComeSoonAreClearedAfter(t *testing.T) {
	r := newRig(t)
	r.clearEvery = 2 * time.Second
	runs := make(chan time.Time, 100)
	r.clear = func(typ spec.ContainerType) bool {
		if typ == spec.LXD {
			runs <- time.Now()
		}
		return false
	}
	r.declare("web", spec.LXD)
	r.start()
	r.eventually("it runs", func() bool { return r.works[spec.LXD].running() })
	<-runs // before the first machine is made
	began := time.Now()
	r.fail("web", 1)
	first := <-runs
	if took := first.Sub(began); took > r.clearEvery-500*time.Millisecond {
		t.Errorf("the first failure was cleared after %s later", took)
	}
	r.fail("web", 2)
	if second := <-runs; second.Sub(first) < r.clearEvery {
		t.Errorf("the second failure was cleared after %s after the first", second.Sub(first))
	}
}

// F11: what is in the way of machines is looked for before any is made, and
// again, without any failure, for as long as some of it had to be left.
func TestWhatHadToBeLeftIsClearedLater(t *testing.T) {
	r := newRig(t)
	var runs atomic.Int32
	r.clear = func(typ spec.ContainerType) bool {
		if typ == spec.LXD && runs.Add(1) == 1 && r.works[typ].running() {
			t.Error("the provisioner ran before")
		}
		return typ == spec.LXD && runs.Load() < 3
	}
	r.declare("web", spec.LXD)
	r.declare("guest", spec.KVM)
	r.start()
	r.eventually("all is cleared", func() bool { return runs.Load() == 3 })
	r.eventually("it runs", func() bool { return r.works[spec.LXD].running() })
	if n := runs.Load(); n != 3 {
		t.Errorf("it was cleared %d times", n)
	}
}

// What a power cut left in the way of a machine may come to light only when an
// operation fails: each failure is told once, and only to its own type.
func TestEachFailureOfAMachineIsToldOnce(t *testing.T) {
	r := newRig(t)
	failures := make(chan spec.ContainerType, 100)
	var run atomic.Bool
	r.clear = func(typ spec.ContainerType) bool {
		if run.Load() {
			failures <- typ
		}
		return false
	}
	r.declare("web", spec.LXD)
	r.declare("guest", spec.KVM)
	r.start()
	r.eventually("both run", func() bool { return r.works[spec.LXD].running() && r.works[spec.KVM].running() })
	run.Store(true)                        // each was cleared once before
	for _, count := range []int{1, 2, 1} { // it came well in between
		r.fail("web", count)
		select {
		case typ := <-failures:
			if typ != spec.LXD {
				t.Errorf("%s was told of a failure of lxd", typ)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("nobody was told")
		}
	}
	// Another change is no failure: the readiness of its last machine's end
	// shows that it was seen.
	r.declare("web2", spec.LXD)
	if _, err := r.store.Write(t.Context(), state.Atomic, state.Write{ID: state.ID{Kind: spec.KindMachine, Name: "guest"}, Revision: state.AnyRevision, Delete: true}); err != nil {
		t.Fatal(err)
	}
	r.eventually("kvm has ended", func() bool { return !r.works[spec.KVM].running() })
	if n := len(failures); n != 0 {
		t.Errorf("told %d times more", n)
	}
}
