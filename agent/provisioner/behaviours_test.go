package provisioner_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
)

// stray returns a running orphan.
func stray(name string) containerbroker.Instance {
	return containerbroker.Instance{
		Name: name, Status: containerbroker.StatusRunning,
		Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: "uid-" + name, Token: "x"},
	}
}

// P3 P22: in every harvest mode, no orphan is deleted before one complete read
// of records and instances. Then the orphans are deleted and the declared
// machines stay.
func TestNoOrphanIsDeletedBeforeACompleteRead(t *testing.T) {
	r := newRig(t)
	r.config.Harvest = provisioner.HarvestAll
	var broken atomic.Bool
	broken.Store(true)
	r.backend = badStore{Backend: r.store, list: func() error {
		if broken.Load() {
			return errors.New("the disk is slow")
		}
		return nil
	}}
	r.declare("web")
	r.fake.Add(stray("old"))
	r.start()
	r.eventually("passes that fail", func() bool { return r.passes.Load() > 1 })
	if ops := r.fake.Operations(); len(ops) != 0 {
		t.Fatalf("changes before anything was read: %v", ops)
	}
	broken.Store(false)
	r.eventually("the sweep", func() bool { _, there := r.fake.Get("old"); return !there })
	r.awaitState("web", spec.MachineRunning)
}

// P7: a configuration that changes while the worker stops delays nothing.
func TestConfigurationDuringShutdown(t *testing.T) {
	r := newRig(t)
	r.fake.Block(brokertest.Create, "web")
	r.declare("web")
	stop := r.start()
	r.eventually("a create in flight", func() bool { return r.fake.Calls(brokertest.Create) == 1 })
	host := state.ID{Kind: spec.KindHost, Name: spec.HostName}
	r.write(state.Write{ID: host, Life: state.Alive, Spec: spec.Encode(spec.HostRecord{Config: spec.DefaultConfig(), Harvest: "all"})})
	began := time.Now()
	stop()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("stopping took %s", took)
	}
}

// P11 P14 P21: a machine with an unreadable status stops every change, its own
// removal and the harvest too. The worker does not end, and goes on when the
// status is readable again.
func TestUnreadableStatusChangesNothing(t *testing.T) {
	r := newRig(t)
	r.config.Harvest = provisioner.HarvestAll
	r.declare("web")
	stop := r.start()
	r.awaitState("web", spec.MachineRunning)
	stop()
	r.remove("web")
	r.fake.Add(stray("old"))
	web := state.ID{Kind: spec.KindMachine, Name: "web"}
	o, err := r.store.Get(t.Context(), web)
	if err != nil {
		t.Fatal(err)
	}
	r.write(state.Write{ID: web, Revision: state.AnyRevision, Status: []byte(`{"state":7}`)})
	r.fake.Forget()
	passes := r.passes.Load()
	r.start()
	r.eventually("passes that fail", func() bool { return r.passes.Load() > passes+1 })
	if ops := r.fake.Operations(); len(ops) != 0 {
		t.Fatalf("changes: %v", ops)
	}
	r.write(state.Write{ID: web, Revision: state.AnyRevision, Status: o.Status})
	r.awaitGone("web")
	r.eventually("the sweep", func() bool { _, there := r.fake.Get("old"); return !there })
}

// P26 P49: a pass makes one listing and one read for all machines, and no
// further requests if nothing is to be stopped or deleted.
func TestPassesAreBulk(t *testing.T) {
	r := newRig(t)
	var reads atomic.Int64
	r.backend = badStore{Backend: r.store, list: func() error { reads.Add(1); return nil }}
	for i := range 20 {
		r.declare(fmt.Sprint("m", i))
	}
	r.start()
	for i := range 20 {
		r.awaitState(fmt.Sprint("m", i), spec.MachineRunning)
	}
	r.awaitPass()
	r.stop()
	if passes, lists := r.passes.Load(), r.fake.Calls(brokertest.List); int64(lists) > passes+1 || reads.Load() > passes+1 {
		t.Errorf("%d listings and %d readings in %d passes", lists, reads.Load(), passes)
	}
	if n := r.fake.Calls(brokertest.Delete); n != 0 {
		t.Errorf("%d deletes", n)
	}
}

// P32 Z16: a failure in the preparation of a machine is that machine's error,
// with its reason. The other machines of the pass go on.
func TestPreparationFailsAlone(t *testing.T) {
	r := newRig(t)
	r.fake.NoImage("debian/99")
	for _, name := range []string{"a", "c"} {
		r.declare(name)
	}
	r.declare("b", func(m *spec.MachineRecord) { m.Machine.Image = "debian/99" })
	r.start()
	if s := r.awaitState("b", spec.MachineError); !strings.Contains(s.Message, "debian/99") {
		t.Errorf("message %q", s.Message)
	}
	r.awaitState("a", spec.MachineRunning)
	r.awaitState("c", spec.MachineRunning)
	if _, there := r.fake.Get("b"); there {
		t.Error("made without its image")
	}
}

// P33: every create attempt has a new token, and the instance bears the token
// of the attempt that created it.
func TestTokensAreFresh(t *testing.T) {
	r := newRig(t)
	r.fake.Fail(brokertest.Create, "web", 2, errors.New("not now"))
	r.declare("web")
	r.start()
	s := r.awaitState("web", spec.MachineRunning)
	inst, _ := r.fake.Get("web")
	if n := r.tokens.Load(); n != 3 || s.Instance.Token != "token-3" || inst.Stamp.Token != "token-3" {
		t.Errorf("%d tokens, recorded %q, stamped %q", n, s.Instance.Token, inst.Stamp.Token)
	}
}

// C16 P35 P41: the broker gets all settings of the machine, and the resources
// that the instance really has are recorded.
func TestEverythingReachesTheBroker(t *testing.T) {
	r := newRig(t)
	r.config.Pool, r.config.Namespace = "fast", "site"
	r.declare("web", func(m *spec.MachineRecord) {
		m.Machine.CPUs, m.Machine.Memory, m.Machine.RootDisk, m.Machine.Nesting = 2, 256<<20, 4<<30, true
	})
	r.start()
	r.awaitState("web", spec.MachineRunning)
	inst, _ := r.fake.Get("web")
	given := inst.Stored
	if given.CPUs != 2 || given.Memory != 256<<20 || given.RootDisk != 4<<30 || given.Pool != "fast" || !given.Nesting || !given.Autostart {
		t.Errorf("given %+v", given)
	}
	if inst.Stamp.Namespace != "site" || !strings.Contains(inst.Stamp.Record, `"debian/12"`) || !strings.Contains(given.UserData, "hostname") {
		t.Errorf("stamp %+v, user-data %q", inst.Stamp, given.UserData)
	}
	r.eventually("what it was given", func() bool {
		s, _ := r.status("web")
		return s.Hardware != nil && *s.Hardware == spec.Hardware{CPUs: 2, Memory: 256 << 20, RootDisk: 4 << 30}
	})
}

// P38 P47: the host is one zone, so each failed create is one attempt. A due
// retry, an event and a changed record at the same time cause one create.
func TestOneCreatePerAttempt(t *testing.T) {
	r := newRig(t)
	r.fake.Fail(brokertest.Create, "web", 1, errors.New("not now"))
	r.declare("web")
	r.start()
	r.eventually("a failed attempt", func() bool {
		s, _ := r.status("web")
		return s.Attempts.Count == 1
	})
	release := r.fake.Block(brokertest.Create, "web")
	r.declare("web", func(m *spec.MachineRecord) { m.RetryRequest = 1 })
	r.fake.Add(containerbroker.Instance{Name: "other", Status: containerbroker.StatusStopped})
	for range 3 {
		r.awaitPass()
	}
	if n := r.fake.Calls(brokertest.Create); n != 2 {
		t.Errorf("%d creates", n)
	}
	release()
	r.awaitState("web", spec.MachineRunning)
}

// P40 Z18: an instance that cannot be recorded is deleted at once and the
// reason is reported. The next attempt creates an instance that is recorded.
func TestUnrecordedInstanceIsRemoved(t *testing.T) {
	r := newRig(t)
	r.config.RetryDelay = 200 * time.Millisecond
	var refusals atomic.Int64
	r.backend = badStore{Backend: r.store, write: func(w state.Write) error {
		if strings.Contains(string(w.Status), `"token"`) && refusals.Add(1) == 1 {
			return errors.New("the journal is read-only")
		}
		return nil
	}}
	r.declare("web")
	r.start()
	r.eventually("the reason", func() bool {
		s, _ := r.status("web")
		return strings.Contains(s.Message, "the journal is read-only") && s.Attempts.Count == 1
	})
	if _, there := r.fake.Get("web"); there {
		t.Error("the instance is left without a record")
	}
	r.awaitState("web", spec.MachineRunning)
	want := "create web, delete web, create web, start web"
	if got := strings.Join(only(r.fake.Operations(), "web"), ", "); got != want {
		t.Errorf("operations %s, want %s", got, want)
	}
}

// only returns the operations on an instance.
func only(ops []string, name string) []string {
	var mine []string
	for _, op := range ops {
		if strings.HasSuffix(op, " "+name) {
			mine = append(mine, op)
		}
	}
	return mine
}

// P44: a machine whose retry is running shows that, and not its old error.
func TestRetriedMachineIsProvisioning(t *testing.T) {
	r := newRig(t)
	r.fake.Fail(brokertest.Create, "web", 1, fault.New(fault.NeedsOperator, "the image is broken"))
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineError)
	release := r.fake.Block(brokertest.Create, "web")
	r.declare("web", func(m *spec.MachineRecord) { m.RetryRequest = 1 })
	if s := r.awaitState("web", spec.MachineProvisioning); strings.Contains(s.Message, "broken") {
		t.Errorf("message %q", s.Message)
	}
	release()
	r.awaitState("web", spec.MachineRunning)
}

// P50 Z17: drift that cannot be corrected is the machine's error, which the
// status reports, and is retried.
func TestStatusReportsDriftThatCannotBeCorrected(t *testing.T) {
	r := newRig(t)
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.CPUs = 2 })
	r.start()
	r.awaitState("web", spec.MachineRunning)
	before, _ := r.fake.Get("web")
	r.fake.Fail(brokertest.Update, "web", 3, errors.New("the limit is refused"))
	r.fake.Change("web", func(i *containerbroker.Instance) { i.CPUs = 1 })
	r.eventually("the error", func() bool {
		s, _ := r.status("web")
		return strings.Contains(s.Message, "the limit is refused") && s.Attempts.Count > 0
	})
	r.eventually("the drift put right", func() bool { i, _ := r.fake.Get("web"); return i.CPUs == 2 })
	r.awaitState("web", spec.MachineRunning)
	if after, _ := r.fake.Get("web"); after.PID != before.PID {
		t.Error("it was restarted")
	}
}
