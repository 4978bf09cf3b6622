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

// reasons returns the reasons of type/lxd's events.
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

// A provisioner that ended for any reason is noticed within LookEvery and
// restarted, and events report it.
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

// A running provisioner is checked only every LookEvery, however many changes
// come, and immediately at an operator's retry.
func TestProvisionerIsCheckedOnRequest(t *testing.T) {
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
	r.declare("guest", spec.KVM) // its readiness shows that the worker has seen the changes
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

// A unit that cannot be started causes a single event and sets its machines to
// waiting; the start is retried automatically.
func TestProvisionerThatCannotBeStartedIsReported(t *testing.T) {
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

// fail records failed attempts in a machine's status.
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

// The first failure triggers Clear immediately, even shortly after the type
// became ready. A failure soon after waits for ClearEvery, and then needs no
// other trigger.
func TestEarlyFailuresAreClearedAfterADelay(t *testing.T) {
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

// F11: leftovers are cleared before any machine is created, and again, even
// without a failure, while some of them remain.
func TestRemainingLeftoversAreClearedLater(t *testing.T) {
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

// Leftovers of a power cut may show only when an operation fails. Each failure
// triggers Clear once, and only for its own type.
func TestEachMachineFailureTriggersClearOnce(t *testing.T) {
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
	for _, count := range []int{1, 2, 1} { // web recovered between 2 and 1
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
	// Another change is no failure. A removal, whose type is not known any more,
	// triggers Clear once for each type.
	r.declare("web2", spec.LXD)
	r.remove("guest")
	told := []spec.ContainerType{<-failures, <-failures}
	slices.Sort(told)
	r.eventually("kvm has ended", func() bool { return !r.works[spec.KVM].running() })
	if n := len(failures); n != 0 || !slices.Equal(told, []spec.ContainerType{spec.KVM, spec.LXD}) {
		t.Errorf("after the removal %v were told, then %d times more", told, n)
	}
}
