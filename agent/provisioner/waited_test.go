package provisioner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
)

// queued declares a machine whose create waits for the only slot. Another
// machine's create holds the slot until the returned function is called.
func queued(r *rig, change ...func(*spec.MachineRecord)) (release func()) {
	r.t.Helper()
	r.config.Concurrency = 1
	release = r.fake.Block(brokertest.Create, "first")
	r.declare("first")
	r.start()
	r.eventually("a create in flight", func() bool { return r.fake.Calls(brokertest.Create) == 1 })
	r.declare("web", change...)
	r.eventually("its image", func() bool { return r.fake.Calls(brokertest.EnsureImage) == 2 })
	r.awaitPass()
	return release
}

// However many machines are declared at once, few operations wait for a slot,
// since all of them write to the same store.
func TestFewOperationsWaitHoweverManyMachinesAreDeclared(t *testing.T) {
	r := newRig(t)
	r.config.Concurrency = 1
	release := r.fake.Block(brokertest.Create, "first")
	r.declare("first")
	r.start()
	r.eventually("a create in flight", func() bool { return r.fake.Calls(brokertest.Create) == 1 })
	const n, bound = 600, 300
	for i := range n {
		r.declare(fmt.Sprintf("m%d", i))
	}
	r.eventually("those that wait", func() bool { return r.fake.Calls(brokertest.EnsureImage) > 200 })
	r.awaitPass()
	r.awaitPass()
	if got := r.fake.Calls(brokertest.EnsureImage); got > bound {
		t.Errorf("%d operations were begun", got)
	}
	release()
	r.eventually("the next ones", func() bool { return r.fake.Calls(brokertest.EnsureImage) > bound })
}

// A machine that exists is restarted although more machines than may be begun
// wait for an image.
func TestARestartDoesNotWaitForTheImagesOfOthers(t *testing.T) {
	r := newRig(t)
	r.declare("old")
	r.start()
	r.awaitState("old", spec.MachineRunning)
	release := r.fake.Block(brokertest.EnsureImage, "slow/1")
	defer release()
	for i := range 300 {
		r.declare(fmt.Sprintf("m%d", i), func(m *spec.MachineRecord) { m.Machine.Image = "slow/1" })
	}
	r.eventually("many that wait", func() bool { return r.fake.Calls(brokertest.EnsureImage) > 200 })
	r.awaitPass()
	r.awaitPass()
	r.declare("old", func(m *spec.MachineRecord) { m.RestartRequest = 1 })
	r.eventually("the restart", func() bool { s, _ := r.status("old"); return s.RestartsDone == 1 })
}

// P30: a machine whose declaration changes while it waits for a slot is created
// once, with the new declaration.
func TestP30ChangedWhileItWaitsForAPlace(t *testing.T) {
	r := newRig(t)
	release := queued(r)
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.CPUs = 3 })
	release()
	r.eventually("web runs as declared", func() bool {
		s, _ := r.status("web")
		inst, _ := r.fake.Get("web")
		return s.State == spec.MachineRunning && inst.CPUs == 3
	})
	if ops := r.fake.Operations(); slices.ContainsFunc(ops, func(op string) bool { return strings.HasPrefix(op, "update web") }) {
		t.Errorf("it was made as it was declared before: %v", ops)
	}
}

// P30: a machine that is removed while it waits for a slot is never created.
func TestP30RemovedWhileItWaitsForAPlace(t *testing.T) {
	r := newRig(t)
	release := queued(r)
	r.remove("web")
	release()
	r.awaitGone("web")
	if ops := r.fake.Operations(); slices.ContainsFunc(ops, func(op string) bool { return strings.HasSuffix(op, " web") }) {
		t.Errorf("operations: %v", ops)
	}
}

// P30: a machine that is declared as stopped during its create is not started.
func TestP30StoppedWhileItIsMade(t *testing.T) {
	r := newRig(t)
	release := r.fake.Block(brokertest.Create, "web")
	r.declare("web")
	r.start()
	r.eventually("a create in flight", func() bool { return r.fake.Calls(brokertest.Create) == 1 })
	off := false
	r.declare("web", func(m *spec.MachineRecord) { m.PowerOverride = &off })
	release()
	r.awaitState("web", spec.MachineStopped)
	if ops := r.fake.Operations(); slices.Contains(ops, "start web") {
		t.Errorf("operations: %v", ops)
	}
}

// P12: a machine that is declared again during the deletion of its instance
// keeps its record and gets a new instance.
func TestP12DeclaredAgainWhileItIsDeleted(t *testing.T) {
	r := newRig(t)
	before := r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	release := r.fake.Block(brokertest.Delete, "web")
	r.remove("web")
	r.eventually("a delete in flight", func() bool { return r.fake.Calls(brokertest.Delete) == 1 })
	after := r.declare("web", func(m *spec.MachineRecord) { m.Machine.CPUs = 3 })
	release()
	r.eventually("web runs as declared", func() bool {
		s, _ := r.status("web")
		inst, there := r.fake.Get("web")
		return s.State == spec.MachineRunning && there && inst.CPUs == 3 && inst.Status == containerbroker.StatusRunning
	})
	if after.UID != before.UID {
		t.Errorf("uid %s, before %s", after.UID, before.UID)
	}
}
