package provisioner_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
)

// P12 P27: a record that cannot be removed stays, counts as being removed, and
// is removed when that is possible.
func TestRecordThatCannotBeRemoved(t *testing.T) {
	r := newRig(t)
	var refusals atomic.Int64
	r.backend = badStore{Backend: r.store, write: func(w state.Write) error {
		if w.Delete && refusals.Add(1) <= 2 {
			return errors.New("the disk is full")
		}
		return nil
	}}
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.remove("web")
	r.eventually("a refused removal that is told", func() bool {
		s, there := r.status("web")
		return there && s.State == spec.MachineDying && strings.Contains(s.Message, "the disk is full")
	})
	r.awaitGone("web")
	if n := refusals.Load(); n != 3 {
		t.Errorf("%d removals of the record, want 3", n)
	}
}

// P31: a machine is removed in two steps: its record, which reserves its
// networks and storage, stays until its instance is gone.
func TestRecordOutlivesInstance(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	release := r.fake.Block(brokertest.Delete, "web")
	r.remove("web")
	r.eventually("a delete in flight", func() bool { return r.fake.Calls(brokertest.Delete) == 1 })
	r.awaitPass()
	if s, there := r.status("web"); !there || s.State != spec.MachineDying || s.Instance == nil {
		t.Errorf("there %v, status %+v", there, s)
	}
	release()
	r.awaitGone("web")
	if _, there := r.fake.Get("web"); there {
		t.Error("the record went before the instance")
	}
}

// Z31: machines that are removed while creates hold every slot block nothing;
// each removal ends in its turn.
func TestRemovalsWhileAllPlacesAreTaken(t *testing.T) {
	r := newRig(t)
	r.config.Concurrency = 1
	release := r.fake.Block(brokertest.Create, "")
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		r.declare(name)
	}
	r.start()
	r.eventually("a create in flight", func() bool { return r.fake.Calls(brokertest.Create) == 1 })
	for _, name := range names {
		r.remove(name)
	}
	r.awaitPass()
	release()
	for _, name := range names {
		r.awaitGone(name)
	}
	if left := r.fake.Names(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// P18: a vanished record, and a change event for a record that never existed,
// cause no action. The harvest mode decides about the instance, now an orphan.
func TestVanishedRecordsAreDropped(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.awaitPass()
	r.fake.Forget()
	r.write(state.Write{ID: state.ID{Kind: spec.KindMachine, Name: "web"}, Revision: state.AnyRevision, Delete: true})
	r.fake.Change("nobody", func(*containerbroker.Instance) {})
	r.awaitPass()
	if ops := r.fake.Operations(); len(ops) != 0 {
		t.Errorf("changes: %v", ops)
	}
	if inst, there := r.fake.Get("web"); !there || inst.Status != containerbroker.StatusRunning {
		t.Errorf("the instance is %v, %s", there, inst.Status)
	}
	r.declare("db")
	r.awaitState("db", spec.MachineRunning)
}

// P27 B7 L11: a failed delete delays no other delete of the pass, and its own
// record shows the reason.
func TestFailedDeleteHoldsUpNoOther(t *testing.T) {
	r := newRig(t)
	r.config.RetryDelay = time.Hour
	names := []string{"a", "b", "c"}
	for _, name := range names {
		r.declare(name)
	}
	r.start()
	for _, name := range names {
		r.awaitState(name, spec.MachineRunning)
	}
	r.fake.Fail(brokertest.Delete, "a", 1, errors.New("the dataset is busy"))
	for _, name := range names {
		r.remove(name)
	}
	r.awaitGone("b")
	r.awaitGone("c")
	r.eventually("the reason", func() bool {
		s, there := r.status("a")
		return there && s.State == spec.MachineDying && strings.Contains(s.Message, "the dataset is busy")
	})
}
