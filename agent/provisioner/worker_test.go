package provisioner_test

import (
	"errors"
	"fmt"
	"slices"
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

func no() *bool { b := false; return &b }

// P13 P39: a declared machine becomes a running instance, stamped and recorded.
func TestDeclaredMachineRuns(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	s := r.awaitState("web", spec.MachineRunning)
	inst, ok := r.fake.Get("web")
	if !ok || inst.Status != containerbroker.StatusRunning {
		t.Fatalf("no running instance:\n%s", r.fake)
	}
	if s.Instance == nil || s.Instance.Token != inst.Stamp.Token || s.Instance.Name != "web" {
		t.Errorf("recorded %+v, stamped %+v", s.Instance, inst.Stamp)
	}
	if len(s.Addresses) == 0 {
		t.Error("no address is known")
	}
	if s.Took == nil || s.Took.Boot == 0 {
		t.Errorf("the times are %+v", s.Took)
	}
	if intents, err := r.store.Intents(t.Context()); err != nil || len(intents) != 0 {
		t.Errorf("intents left open: %v %v", intents, err)
	}
	r.fake.Forget()
	r.awaitPass()
	if ops := r.fake.Operations(); len(ops) != 0 {
		t.Errorf("a second look changed something: %v", ops)
	}
}

// A panic in a machine's operation is a failure of only that machine, and is
// retried.
func TestPanicIsOneMachinesFailure(t *testing.T) {
	r := newRig(t)
	r.panics.Store(true)
	r.declare("a")
	r.declare("b")
	r.start()
	r.awaitState("a", spec.MachineRunning)
	r.awaitState("b", spec.MachineRunning)
	if r.panics.Load() || r.fake.Calls(brokertest.Create) != 2 {
		t.Errorf("%d creates", r.fake.Calls(brokertest.Create))
	}
}

// P2: a restart of the agent reads everything and creates nothing again.
func TestRestartRecreatesNothing(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	stop := r.start()
	r.awaitState("web", spec.MachineRunning)
	before, _ := r.fake.Get("web")
	stop()
	r.start()
	r.awaitPass()
	after, _ := r.fake.Get("web")
	if before.PID != after.PID || r.fake.Calls(brokertest.Create) != 1 {
		t.Errorf("the instance changed: pid %d → %d, %d creates", before.PID, after.PID, r.fake.Calls(brokertest.Create))
	}
}

// P1: a worker sees only the machines of its type.
func TestOtherTypesAreLeftAlone(t *testing.T) {
	r := newRig(t)
	r.declare("guest", func(m *spec.MachineRecord) { m.Machine.Type = spec.KVM })
	r.start()
	r.awaitPass()
	if n := r.fake.Calls(brokertest.Create); n != 0 {
		t.Errorf("%d creates for a machine of another type", n)
	}
	if s, _ := r.status("guest"); s.State != "" {
		t.Errorf("its status was written: %+v", s)
	}
}

// P36 P37 P38: a transient failure is retried with the configured count and
// delay, and other machines go on meanwhile. P46: containers are retried too.
func TestTransientFailureIsRetried(t *testing.T) {
	r := newRig(t)
	r.fake.Fail(brokertest.Create, "web", 2, errors.New("the pool is busy"))
	r.declare("web")
	r.declare("db")
	r.start()
	r.awaitState("db", spec.MachineRunning)
	r.awaitState("web", spec.MachineRunning)
	if n := r.fake.Calls(brokertest.Create); n != 4 {
		t.Errorf("%d creates, want 1 of db and 3 of web", n)
	}
	s, _ := r.status("web")
	if s.Attempts.Count != 0 || s.Attempts.NextRetry != nil || s.Message != "" {
		t.Errorf("the failure is still told: %+v", s)
	}
}

// P37 P43: a persistent failure shows the last message, the attempts and the
// next retry, and is retried at the transient interval.
func TestPersistentFailureIsShownAndTriedAgain(t *testing.T) {
	r := newRig(t)
	r.config.TransientRetryInterval = time.Hour
	r.fake.Fail(brokertest.Create, "web", 3, errors.New("no space left in the pool"))
	r.declare("web")
	stop := r.start()
	s := r.awaitState("web", spec.MachineError)
	if !strings.Contains(s.Message, "no space left in the pool") || s.Attempts.Count != 3 || s.Attempts.NextRetry == nil {
		t.Errorf("status %+v", s)
	}
	stop()
	// P15: a restart of the agent does not retry a machine in error.
	stop = r.start()
	r.awaitPass()
	if n := r.fake.Calls(brokertest.Create); n != 3 {
		t.Errorf("tried again by a restart: %d creates", n)
	}
	stop()
	// The transient interval does.
	r.config.TransientRetryInterval = 10 * time.Millisecond
	s.Attempts.NextRetry = &time.Time{}
	o, err := r.store.Get(t.Context(), state.ID{Kind: spec.KindMachine, Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	r.write(state.Write{ID: o.ID, Revision: o.Revision, Status: spec.Encode(s)})
	r.start()
	r.awaitState("web", spec.MachineRunning)
}

// P15 P45: an error that needs the operator waits for `hostler retry`, a
// changed declaration, or an event about the machine.
func TestErrorsForOperatorsWait(t *testing.T) {
	r := newRig(t)
	r.fake.Fail(brokertest.Create, "web", 1, fault.New(fault.NeedsOperator, "the image is broken"))
	r.declare("web")
	r.start()
	s := r.awaitState("web", spec.MachineError)
	if s.Attempts.NextRetry != nil {
		t.Errorf("a next retry is promised: %+v", s.Attempts)
	}
	r.awaitPass()
	if n := r.fake.Calls(brokertest.Create); n != 1 {
		t.Fatalf("tried again unasked: %d creates", n)
	}
	r.declare("web", func(m *spec.MachineRecord) { m.RetryRequest = 1 })
	r.awaitState("web", spec.MachineRunning)
}

// P43: an operation that failed for a missing image is retried at once when an
// image appears. An error that needs the operator waits on.
func TestANewImageRetriesTheMachinesThatLackedIt(t *testing.T) {
	r := newRig(t)
	r.fake.NoImage("debian/12")
	r.fake.Fail(brokertest.EnsureImage, "mine/1", 1, fault.New(fault.NeedsOperator, "the image is broken"))
	r.declare("web")
	r.declare("db", func(m *spec.MachineRecord) { m.Machine.Image = "mine/1" })
	r.start()
	if s := r.awaitState("web", spec.MachineError); s.Attempts.NextRetry != nil {
		t.Errorf("a next retry is promised: %+v", s.Attempts)
	}
	r.awaitState("db", spec.MachineError)
	r.fake.AddImage("debian/12", false)
	r.awaitState("web", spec.MachineRunning)
	r.awaitPass()
	if s, _ := r.status("db"); s.State != spec.MachineError {
		t.Errorf("db is %+v", s)
	}
}

// P6: if the agent stops while a retry waits, the machine stays pending and
// nothing starts afterwards.
func TestStopDuringBackOff(t *testing.T) {
	r := newRig(t)
	r.config.RetryDelay = time.Hour
	r.fake.Fail(brokertest.Create, "web", -1, errors.New("not now"))
	r.declare("web")
	stop := r.start()
	r.eventually("a failed attempt", func() bool { s, _ := r.status("web"); return s.Attempts.Count == 1 })
	began := time.Now()
	stop()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("stopping took %s", took)
	}
	if s, _ := r.status("web"); s.State != spec.MachinePending || r.fake.Calls(brokertest.Create) != 1 {
		t.Errorf("state %s after %d creates", s.State, r.fake.Calls(brokertest.Create))
	}
}

// P30: a removal during a create waits for the create and then deletes the
// instance; errors of the create are ignored.
func TestRemovalDuringCreate(t *testing.T) {
	for _, failing := range []bool{false, true} {
		r := newRig(t)
		release := r.fake.Block(brokertest.Create, "web")
		if failing {
			r.fake.Fail(brokertest.Create, "web", 1, errors.New("half-way"))
		}
		r.declare("web")
		r.start()
		r.eventually("a create in flight", func() bool { return r.fake.Calls(brokertest.Create) == 1 })
		r.remove("web")
		r.awaitPass()
		release()
		r.awaitGone("web")
		if _, there := r.fake.Get("web"); there {
			t.Errorf("failing=%v: the instance is still there", failing)
		}
	}
}

// P29: events about a machine whose deletion runs cause no second delete.
func TestOneDeleteAtATime(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	release := r.fake.Block(brokertest.Delete, "web")
	r.remove("web")
	r.eventually("a delete in flight", func() bool { return r.fake.Calls(brokertest.Delete) == 1 })
	r.awaitPass()
	release()
	r.awaitGone("web")
	if n := r.fake.Calls(brokertest.Delete); n != 1 {
		t.Errorf("%d deletes", n)
	}
}

// P27: a failed delete keeps the record and is retried.
func TestFailedDeleteIsTriedAgain(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.fake.Fail(brokertest.Delete, "web", 2, errors.New("the dataset is busy"))
	r.remove("web")
	r.awaitGone("web")
	if n := r.fake.Calls(brokertest.Delete); n != 3 {
		t.Errorf("%d deletes, want 3", n)
	}
}

// I3: a create whose reply was lost creates no second instance.
func TestLostReplyMakesNoSecondInstance(t *testing.T) {
	r := newRig(t)
	r.fake.LoseReplies(brokertest.Create, "web", 1, errors.New("the connection broke"))
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	creates := 0
	for _, op := range r.fake.Operations() {
		if op == "create web" {
			creates++
		}
	}
	if creates != 1 {
		t.Errorf("made %d times:\n%s", creates, strings.Join(r.fake.Operations(), "\n"))
	}
}

// P19: the removals of a pass end before its creates begin.
func TestRemovalsComeFirst(t *testing.T) {
	r := newRig(t)
	r.config.Harvest = provisioner.HarvestAll
	r.fake.Add(containerbroker.Instance{
		Name: "left-over", Status: containerbroker.StatusRunning,
		Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: "gone", Token: "x"},
	})
	r.declare("a-new-one")
	r.start()
	r.awaitState("a-new-one", spec.MachineRunning)
	if at := r.order("delete left-over", "create a-new-one"); at[0] < 0 || at[0] > at[1] {
		t.Errorf("order %v:\n%s", at, strings.Join(r.fake.Operations(), "\n"))
	}
}

// P20 P21: if the instances cannot be listed or a record cannot be read,
// nothing is changed in any harvest mode. W: the status says unknown, never
// gone.
func TestIncompleteReadChangesNothing(t *testing.T) {
	r := newRig(t)
	r.config.Harvest = provisioner.HarvestAll
	r.declare("web")
	stop := r.start()
	r.awaitState("web", spec.MachineRunning)
	r.fake.Add(containerbroker.Instance{Name: "old", Status: containerbroker.StatusRunning, Stamp: &containerbroker.Stamp{Namespace: "other"}})
	r.fake.Fail(brokertest.List, "", -1, errors.New("the socket is closed"))
	r.fake.Forget()
	r.declare("db")
	s := r.awaitState("web", spec.MachineUnknown)
	if !strings.Contains(s.Message, "the socket is closed") {
		t.Errorf("message %q", s.Message)
	}
	if ops := r.fake.Operations(); len(ops) != 0 {
		t.Errorf("blind changes: %v", ops)
	}
	r.fake.Heal()
	r.fake.Change("old", func(*containerbroker.Instance) {}) // the event shows that the hypervisor is back
	r.awaitState("web", spec.MachineRunning)
	r.awaitState("db", spec.MachineRunning)
	stop()

	r.write(state.Write{ID: state.ID{Kind: spec.KindMachine, Name: "damaged"}, Life: state.Alive, Spec: []byte(`{"machine":7}`)})
	r.fake.Add(containerbroker.Instance{Name: "stray", Status: containerbroker.StatusRunning, Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: "stray"}})
	r.fake.Forget()
	r.start()
	r.eventually("passes that fail", func() bool { return r.passes.Load() > 0 })
	if ops := r.fake.Operations(); len(ops) != 0 {
		t.Errorf("changes while a record cannot be read: %v", ops)
	}
}

// A listing that began before the end of an operation and then fails does not
// undo the status that the operation wrote, in which the instance stands.
func TestFailedListingKeepsTheResultOfAnOperation(t *testing.T) {
	r := newRig(t)
	create := r.fake.Block(brokertest.Create, "web")
	r.declare("web")
	r.start()
	r.eventually("a create", func() bool { return r.fake.Calls(brokertest.Create) > 0 })
	before := r.fake.Calls(brokertest.List)
	r.fake.Fail(brokertest.List, "", 1, errors.New("the socket is closed"))
	list := r.fake.Block(brokertest.List, "")
	r.declare("db")
	r.eventually("a listing", func() bool { return r.fake.Calls(brokertest.List) > before })
	create()
	r.awaitState("web", spec.MachineRunning)
	list()
	r.awaitState("db", spec.MachineRunning)
	r.awaitState("web", spec.MachineRunning)
}

// P4: a harvest mode set at run time takes effect at once. P24: foreign
// instances and those of other agents are never touched.
func TestHarvestModeSweepsAtOnce(t *testing.T) {
	r := newRig(t)
	for name, stamp := range map[string]*containerbroker.Stamp{
		"stray":   {Namespace: "hostler", UID: "nobody"},
		"other":   {Namespace: "another", UID: "nobody"},
		"foreign": nil,
	} {
		r.fake.Add(containerbroker.Instance{Name: name, Status: containerbroker.StatusRunning, Stamp: stamp})
	}
	r.start()
	r.awaitPass()
	if _, there := r.fake.Get("stray"); !there {
		t.Fatal("swept in mode destroyed")
	}
	c := spec.DefaultConfig()
	r.write(state.Write{ID: state.ID{Kind: spec.KindHost, Name: spec.HostName}, Life: state.Alive, Spec: spec.Encode(spec.HostRecord{Config: c, Harvest: "unknown"})})
	r.eventually("the sweep", func() bool { _, there := r.fake.Get("stray"); return !there })
	// No machine bears the instance's name, so the event is on the container type.
	r.eventually("its event", func() bool {
		events, err := r.store.Events(t.Context(), state.EventQuery{Object: &state.ID{Kind: spec.KindContainerType, Name: "lxd"}})
		return err == nil && len(events) == 1 && events[0].Reason == "Harvested" && strings.HasPrefix(events[0].Message, "instance stray: ")
	})
	for _, name := range []string{"other", "foreign"} {
		if _, there := r.fake.Get(name); !there {
			t.Errorf("%s was touched", name)
		}
	}
}

// Messages and events, which all readers see, hold console lines only if the
// host opens consoles to readers: a first boot prints passwords there.
// Attack: guests
func TestMessagesHoldNoConsoleLinesUnlessReadersSeeConsoles(t *testing.T) {
	for _, open := range []bool{false, true} {
		r := newRig(t)
		r.config.ReadersSeeConsoles = open
		died := fault.New(fault.Transient, "it is stopped")
		r.fake.Fail(brokertest.WaitReady, "web", 1, fmt.Errorf("instance web is not ready: %w", containerbroker.WithConsole(died, "Password: hunter2")))
		r.config.RetryDelay = time.Hour
		r.declare("web")
		r.start()
		var events []state.Event
		r.eventually("the event", func() bool {
			events, _ = r.store.Events(t.Context(), state.EventQuery{})
			return slices.ContainsFunc(events, func(e state.Event) bool { return e.Reason == "Failed" })
		})
		s, _ := r.status("web")
		for what, text := range map[string]string{"status": string(spec.Encode(s)), "events": string(spec.Encode(events))} {
			want := "it is stopped; `hostler logs web` shows its console"
			if open {
				want = "it is stopped; its console says: Password: hunter2"
			}
			if strings.Contains(text, "hunter2") != open || !strings.Contains(text, want) {
				t.Errorf("open: %v, %s: %s", open, what, text)
			}
		}
	}
}

// A guest may report any number of addresses; the status keeps a bounded
// number.
// Attack: guests
func TestNoMoreThanSomeAddressesOfAGuestAreKept(t *testing.T) {
	r := newRig(t)
	var many []string
	for i := range 15_000 {
		many = append(many, fmt.Sprintf("10.%d.%d.1", i/250, i%250))
	}
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.fake.SetAddresses("web", many...)
	r.fake.Kill("web")
	r.eventually("its new addresses", func() bool {
		s, _ := r.status("web")
		return len(s.Addresses) > 1
	})
	if s, _ := r.status("web"); !slices.Equal(s.Addresses, many[:containerbroker.MaxAddresses]) {
		t.Errorf("%d addresses are kept", len(s.Addresses))
	}
}

// A machine that dies is started at once. If it dies soon after every start,
// the starts have growing delays.
func TestDeadMachineIsStarted(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.fake.Kill("web")
	r.eventually("a second start", func() bool { return r.fake.Calls(brokertest.SetPower) == 2 })
	r.awaitState("web", spec.MachineRunning)
}

// The power states that a user sets by hand.
func TestPowerStatesSetByHandHold(t *testing.T) {
	r := newRig(t)
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.Running = no() })
	r.start()
	r.awaitState("web", spec.MachineStopped)
	if n := r.fake.Calls(brokertest.SetPower); n != 0 {
		t.Errorf("declared as stopped, yet %d power changes", n)
	}
	r.declare("web")
	r.awaitState("web", spec.MachineRunning)
	before, _ := r.fake.Get("web")
	r.declare("web", func(m *spec.MachineRecord) { m.RestartRequest = 1 })
	r.eventually("a restart", func() bool { now, _ := r.fake.Get("web"); return now.PID != before.PID && now.PID != 0 })
	r.awaitState("web", spec.MachineRunning)
	r.declare("web", func(m *spec.MachineRecord) { m.RestartRequest, m.PowerOverride = 1, no() })
	r.awaitState("web", spec.MachineStopped)
}

// Live changes are made while the machine runs; the others wait for permission.
func TestLiveChangesAreMadeAndOthersAreHeld(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	before, _ := r.fake.Get("web")
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.CPUs, m.Machine.Nesting = 2, true })
	r.eventually("the live change", func() bool { i, _ := r.fake.Get("web"); return i.CPUs == 2 })
	r.eventually("word of the held change", func() bool {
		s, _ := r.status("web")
		for _, c := range s.Conditions {
			if c.Type == spec.ConditionUpToDate && !c.Status {
				return strings.Contains(c.Message, "--allow restart")
			}
		}
		return false
	})
	if now, _ := r.fake.Get("web"); now.PID != before.PID {
		t.Error("restarted unasked")
	}
	r.declare("web", func(m *spec.MachineRecord) {
		m.Machine.CPUs, m.Machine.Nesting = 2, true
		m.Consent([]string{"restart"})
	})
	r.eventually("the allowed restart", func() bool { i, _ := r.fake.Get("web"); return i.PID != before.PID && i.Nesting })
	r.awaitState("web", spec.MachineRunning)
	token := func() string { i, _ := r.fake.Get("web"); return i.Stamp.Token }
	old := token()
	r.declare("web", func(m *spec.MachineRecord) {
		m.Machine.CPUs, m.Machine.Nesting, m.Machine.Image = 2, true, "debian/13"
		m.Consent([]string{"recreate"})
	})
	r.eventually("the allowed recreate", func() bool { i, ok := r.fake.Get("web"); return ok && i.Stamp.Token != old })
	r.awaitState("web", spec.MachineRunning)
}

// A change of only the agent's own record in the stamp causes no event.
func TestChangeOfTheStampAloneCausesNoEvent(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.Retain = true })
	r.eventually("the record with the instance", func() bool {
		i, _ := r.fake.Get("web")
		return i.Stamp != nil && strings.Contains(i.Stamp.Record, `"retain":true`)
	})
	r.stop()
	events, err := r.store.Events(t.Context(), state.EventQuery{})
	if err != nil || len(events) == 0 {
		t.Fatal(len(events), err)
	}
	for _, e := range events {
		if e.Reason == "Updated" {
			t.Errorf("told as %+v", e)
		}
	}
}

// cloud-init's own error is the machine's error, and is not retried without a
// request.
func TestCloudInitErrorIsShown(t *testing.T) {
	r := newRig(t)
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.Running = no() })
	r.start()
	r.awaitState("web", spec.MachineStopped)
	r.fake.BreakCloudInit("web", "unknown module frobnicate")
	r.declare("web")
	if s := r.awaitState("web", spec.MachineError); !strings.Contains(s.Message, "unknown module frobnicate") {
		t.Errorf("message %q", s.Message)
	}
}

// P48: no more operations run at once than configured, and the bound can change
// while they run.
func TestConcurrencyIsBounded(t *testing.T) {
	r := newRig(t)
	r.config.Concurrency = 2
	release := r.fake.Block(brokertest.Create, "")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		r.declare(name)
	}
	r.start()
	r.eventually("two creates", func() bool { return r.fake.Calls(brokertest.Create) == 2 })
	r.awaitPass()
	if n := r.fake.Calls(brokertest.Create); n != 2 {
		t.Errorf("%d creates at once", n)
	}
	c := spec.DefaultConfig()
	c.Concurrency = 4
	r.write(state.Write{ID: state.ID{Kind: spec.KindHost, Name: spec.HostName}, Life: state.Alive, Spec: spec.Encode(spec.HostRecord{Config: c})})
	r.eventually("four creates", func() bool { return r.fake.Calls(brokertest.Create) == 4 })
	release()
	r.awaitState("e", spec.MachineRunning)
}

// P5: the end of the watch on the store is an error of the worker and changes
// nothing.
func TestLostWatchIsAnError(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	stop := r.start()
	r.awaitState("web", spec.MachineRunning)
	stop()
	if err := r.runOnClosingStore(); err == nil || !strings.Contains(err.Error(), "watch") {
		t.Errorf("error %v", err)
	}
	if _, there := r.fake.Get("web"); !there {
		t.Error("the instance was removed")
	}
}

// An address that appears after a machine is ready is found without an event.
func TestLateAddressIsFound(t *testing.T) {
	r := newRig(t)
	release := r.fake.Block(brokertest.WaitReady, "web")
	r.declare("web")
	r.start()
	r.eventually("the wait", func() bool { return r.fake.Calls(brokertest.WaitReady) == 1 })
	r.fake.Change("web", func(i *containerbroker.Instance) { i.Addresses = nil })
	release()
	if s := r.awaitState("web", spec.MachineRunning); len(s.Addresses) != 0 {
		t.Fatalf("addresses %v", s.Addresses)
	}
	r.fake.Change("web", func(i *containerbroker.Instance) { i.Addresses = []string{"10.0.0.7"} })
	r.eventually("the address", func() bool { s, _ := r.status("web"); return len(s.Addresses) == 1 })
}

// The worker goes on when the host's record says that the recovery has ended.
func TestTheEndOfARecoveryWakesTheWorker(t *testing.T) {
	r := newRig(t)
	host := spec.HostRecord{Config: spec.DefaultConfig(), Harvest: "all"}
	host.Recovery.Begin([]spec.ContainerType{spec.LXD})
	id := state.ID{Kind: spec.KindHost, Name: spec.HostName}
	o := r.write(state.Write{ID: id, Life: state.Alive, Spec: spec.Encode(host)})
	r.fake.Add(containerbroker.Instance{Name: "stray", Status: containerbroker.StatusRunning, Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: "nobody"}})
	r.start()
	r.awaitPass()
	if _, there := r.fake.Get("stray"); !there {
		t.Fatal("harvested during the recovery")
	}
	host.Recovery.Done(spec.ScanStorage)
	host.Recovery.Done("lxd")
	r.write(state.Write{ID: id, Revision: o.Revision, Spec: spec.Encode(host)})
	r.eventually("the harvest", func() bool { _, there := r.fake.Get("stray"); return !there })
}
