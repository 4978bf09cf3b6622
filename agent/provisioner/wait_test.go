package provisioner_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
)

// P30: the waits for the image and for readiness end when the machine is
// removed or its declaration changes.
func TestWaitsEndWhenTheDeclarationChanges(t *testing.T) {
	for _, method := range []brokertest.Method{brokertest.EnsureImage, brokertest.WaitReady} {
		t.Run(fmt.Sprint(method, " removed"), func(t *testing.T) {
			r := newRig(t)
			r.fake.Block(method, "")
			r.declare("web")
			r.start()
			r.eventually("a wait", func() bool { return r.fake.Calls(method) == 1 })
			r.remove("web")
			r.awaitGone("web")
			if _, there := r.fake.Get("web"); there {
				t.Errorf("the instance is still there:\n%s", r.fake)
			}
		})
		t.Run(fmt.Sprint(method, " changed"), func(t *testing.T) {
			r := newRig(t)
			release := r.fake.Block(method, "")
			r.declare("web")
			r.start()
			r.eventually("a wait", func() bool { return r.fake.Calls(method) == 1 })
			r.declare("web", func(m *spec.MachineRecord) { m.Machine.CPUs = 3 })
			r.eventually("another wait", func() bool { return r.fake.Calls(method) > 1 })
			release()
			s := r.awaitState("web", spec.MachineRunning)
			if inst, _ := r.fake.Get("web"); inst.CPUs != 3 || s.Attempts.Count != 0 || r.fake.Calls(brokertest.Create) != 1 {
				t.Errorf("status %+v\n%s", s, r.fake)
			}
		})
	}
}

// The wait for readiness also ends when the machine's network changes: the instance may
// need that to be ready.
func TestWaitForReadinessEndsWhenTheNetworkChanges(t *testing.T) {
	r := newRig(t)
	lan := func(bridge string, revision int64) {
		n := spec.Network{Bridge: bridge}
		r.write(state.Write{
			ID: state.ID{Kind: spec.KindNetwork, Name: "lan"}, Life: state.Alive, Revision: revision, Spec: spec.Encode(spec.NetworkRecord{Network: n}),
			Status: spec.Encode(spec.NetworkStatus{State: "ready", Applied: &n, Guests: map[string]spec.GuestAddress{"web/eth0": {MAC: "02:00:00:00:00:01"}}}),
		})
	}
	lan("br-old", 0)
	release := r.fake.Block(brokertest.WaitReady, "")
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.Networks = map[string]spec.NIC{"eth0": {Network: "lan"}} })
	r.start()
	r.eventually("a wait", func() bool { return r.fake.Calls(brokertest.WaitReady) == 1 })
	lan("br-old", state.AnyRevision)
	r.awaitPass()
	if n := r.fake.Calls(brokertest.WaitReady); n != 1 {
		t.Errorf("%d waits, though nothing changed", n)
	}
	lan("br-new", state.AnyRevision)
	r.eventually("another wait", func() bool { return r.fake.Calls(brokertest.WaitReady) > 1 })
	if updates := r.fake.Calls(brokertest.Update); updates != 1 {
		t.Errorf("%d updates before it", updates)
	}
	release()
	r.awaitState("web", spec.MachineRunning)
}

// An orphan that cannot be deleted is retried after growing delays, and at once
// after an event about it.
func TestOrphanThatCannotBeDeletedIsRetried(t *testing.T) {
	r := newRig(t)
	r.config.Harvest, r.config.RetryDelay = provisioner.HarvestAll, 500*time.Millisecond
	r.fake.Add(containerbroker.Instance{
		Name: "old", Status: containerbroker.StatusStopped,
		Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: "gone", Token: "x"},
	})
	r.fake.Fail(brokertest.Delete, "old", -1, errors.New("it is protected"))
	r.start()
	r.eventually("a delete", func() bool { return r.fake.Calls(brokertest.Delete) == 1 })
	for range 3 {
		r.awaitPass()
	}
	if n := r.fake.Calls(brokertest.Delete); n != 1 {
		t.Errorf("%d deletes without a pause", n)
	}
	r.eventually("another delete", func() bool { return r.fake.Calls(brokertest.Delete) == 2 })
	r.fake.Heal()
	r.eventually("the end of it", func() bool { _, there := r.fake.Get("old"); return !there })
}

// A recreate deletes the instance only after its new image is available.
func TestRecreateNeedsItsImageFirst(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.fake.NoImage("debian/13")
	r.declare("web", func(m *spec.MachineRecord) {
		m.Machine.Image, m.Allow, m.Consents = "debian/13", []string{"recreate"}, 1
	})
	s := r.awaitState("web", spec.MachineError)
	if inst, there := r.fake.Get("web"); !there || inst.Status != containerbroker.StatusRunning {
		t.Errorf("the instance was taken away for %q:\n%s", s.Message, r.fake)
	}
}

// P16: an instance whose create was cut short is recorded with the image of
// that create, even if the declaration names another image by now.
func TestFoundInstanceKeepsItsImage(t *testing.T) {
	r := newRig(t)
	o := r.declare("web", func(m *spec.MachineRecord) { m.Machine.Image = "debian/13" })
	stamped := provisioner.StampedRecord{Declaration: "test", Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}}
	r.fake.Add(containerbroker.Instance{
		Name: "web", Status: containerbroker.StatusRunning,
		Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: o.UID, Token: "before", Record: string(spec.Encode(stamped))},
	})
	intent := state.Intent{Token: "before", Object: o.ID, UID: o.UID, Action: "create", Began: time.Now(), Owner: "lxd"}
	if err := r.store.Begin(t.Context(), intent); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.eventually("the change of image is told", func() bool {
		s, _ := r.status("web")
		return s.State == spec.MachineRunning && s.Instance.Image == "debian/12" && strings.Contains(s.Message, "recreate")
	})
}

// The intents of failed creates do not accumulate.
func TestOldIntentsAreForgotten(t *testing.T) {
	r := newRig(t)
	r.fake.Fail(brokertest.Create, "web", -1, fault.New(fault.NeedsOperator, "no"))
	o := r.declare("web")
	for i, age := range []time.Duration{time.Hour, time.Minute} {
		intent := state.Intent{Token: fmt.Sprint("old-", i), Object: o.ID, UID: o.UID, Action: "create", Began: time.Now().Add(-age), Owner: "lxd"}
		if err := r.store.Begin(t.Context(), intent); err != nil {
			t.Fatal(err)
		}
	}
	r.start()
	r.awaitState("web", spec.MachineError)
	intents, err := r.store.Intents(t.Context())
	if err != nil || len(intents) != 2 {
		t.Errorf("%d intents are open: %v %v", len(intents), intents, err)
	}
}

// A machine that is declared while the hypervisor does not answer has the state
// unknown; its row says briefly that the hypervisor does not answer.
func TestStateIsUnknownWhileTheHypervisorDoesNotAnswer(t *testing.T) {
	r := newRig(t)
	r.fake.Fail(brokertest.List, "", -1, containerbroker.Unreachable("LXD", "lxd", errors.New("connection refused")))
	r.declare("web")
	r.start()
	if s := r.awaitState("web", spec.MachineUnknown); s.Message != "LXD does not answer" {
		t.Errorf("it says %q", s.Message)
	}
	r.declare("db")
	r.awaitState("db", spec.MachineUnknown)
}
