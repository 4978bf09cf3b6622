package migrate

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/hosttest"
)

var t0 = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// bench is a worker on a real store with an in-memory LXD and Incus.
type bench struct {
	*Worker
	t          *testing.T
	store      *state.Local
	lxd, incus *brokertest.Fake
	// during is called while an instance is copied.
	during func()
	copies int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t), Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	b := &bench{t: t, store: store, lxd: brokertest.New(), incus: brokertest.New(), during: func() {}}
	b.lxd.Now = func() time.Time { return t0.Add(-time.Minute) } // the starts are before the attempts
	b.incus.Now = b.lxd.Now
	brokers := map[spec.ContainerType]*brokertest.Fake{spec.LXD: b.lxd, spec.Incus: b.incus}
	b.Worker = New(reconcile.Common{Store: store, Now: func() time.Time { return t0 }, Logger: slog.New(slog.DiscardHandler)}, Hypervisors{
		Namespace: "hostler",
		Broker:    func(k spec.ContainerType) (containerbroker.Broker, error) { return brokers[k], nil },
		MadeAs:    provisioner.MadeAs,
		Movable:   func(context.Context, spec.ContainerType, string) error { return nil },
		Transfer: func(_ context.Context, from, to spec.ContainerType, name string, _ containerbroker.Stamp) error {
			b.copies++
			i, _ := brokers[from].Get(name)
			brokers[to].Add(i)
			b.during()
			return nil
		},
	}, b.recordMigration)
	b.write(state.ID{Kind: spec.KindContainerType, Name: string(spec.Incus)}, nil, spec.TypeStatus{State: "ready"})
	return b
}

func (b *bench) write(id state.ID, record, status any) {
	b.t.Helper()
	w := state.Write{ID: id, UID: "uid-" + id.Name, Life: state.Alive, Spec: spec.Encode(record), Status: spec.Encode(status)}
	if o, err := b.store.Get(b.t.Context(), id); err == nil {
		w.Revision = o.Revision
	}
	if _, err := b.store.Write(b.t.Context(), state.Atomic, w); err != nil {
		b.t.Fatal(err)
	}
}

// recordMigration writes the machine's record as the agent does.
func (b *bench) recordMigration(_ context.Context, name, _ string, m spec.Migration) error {
	r, status := b.machine(name)
	if r.Migration = &m; m.Moved() {
		r.Machine.Type = m.To
	}
	b.write(machineID(name), r, status)
	return nil
}

func machineID(name string) state.ID { return state.ID{Kind: spec.KindMachine, Name: name} }

func (b *bench) machine(name string) (r spec.MachineRecord, s spec.MachineStatus) {
	b.t.Helper()
	o, err := b.store.Get(b.t.Context(), machineID(name))
	if err == nil {
		err = o.Decode(&r, &s)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return r, s
}

// declare writes a machine in a phase of its migration. Its provisioner has
// seen the record, and it is as declared.
func (b *bench) declare(name string, phase spec.MigrationPhase) {
	b.t.Helper()
	r := spec.MachineRecord{
		Machine:   spec.Machine{Type: spec.LXD},
		Migration: &spec.Migration{From: spec.LXD, To: spec.Incus, Phase: phase, Began: t0},
	}
	if r.Migration.Moved() {
		r.Machine.Type = spec.Incus
	}
	b.write(machineID(name), r, spec.MachineStatus{
		State: spec.MachineRunning, ObservedGeneration: 1, Instance: &spec.InstanceInfo{Name: name, Token: "token"},
		Conditions: []spec.Condition{{Type: spec.ConditionReady, Status: true}},
	})
}

// add adds a machine's instance that was made as the type made.
func (b *bench) add(f *brokertest.Fake, name string, made spec.ContainerType, status containerbroker.Status) {
	f.Add(containerbroker.Instance{Name: name, Status: status, Stamp: &containerbroker.Stamp{
		Namespace: "hostler", UID: "uid-" + name, Token: "token", Record: `{"name":"` + name + `","machine":{"type":"` + string(made) + `"}}`,
	}})
}

func (b *bench) passes(n int) {
	b.t.Helper()
	for range n {
		if _, err := b.pass(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) want(name string, phase spec.MigrationPhase, lxd, incus bool) {
	b.t.Helper()
	r, _ := b.machine(name)
	_, inLXD := b.lxd.Get(name)
	_, inIncus := b.incus.Get(name)
	if r.Migration.Phase != phase || inLXD != lxd || inIncus != incus {
		b.t.Errorf("%s is %s (%s), in LXD %v, in Incus %v", name, r.Migration.Phase, r.Migration.Error, inLXD, inIncus)
	}
}

// said reports whether an event of the machine has the text.
func (b *bench) said(name, text string) bool {
	b.t.Helper()
	events, err := b.store.Events(b.t.Context(), state.EventQuery{Object: new(machineID(name)), Limit: 100})
	if err != nil {
		b.t.Fatal(err)
	}
	return slices.ContainsFunc(events, func(e state.Event) bool { return strings.Contains(e.Message, text) })
}

// A machine moves, and its original goes once it is as declared.
func TestAMachineMoves(t *testing.T) {
	b := newBench(t)
	b.declare("web", spec.MigrationMoving)
	b.add(b.lxd, "web", spec.LXD, containerbroker.StatusRunning)
	b.passes(1)
	b.want("web", spec.MigrationMoved, true, true)
	b.passes(1) // the provisioner has not seen the record
	b.want("web", spec.MigrationMoved, true, true)
	b.declare("web", spec.MigrationMoved)
	o, err := b.store.Get(t.Context(), machineID("web"))
	if err != nil {
		t.Fatal(err)
	}
	r, s := b.machine("web")
	s.ObservedGeneration = o.Generation
	b.write(machineID("web"), r, s)
	b.passes(1)
	b.want("web", spec.MigrationDone, false, true)
}

// The copy of a machine whose original is gone holds the machine's only data,
// e.g. if the user removed the original, or the store is older than the end of
// the migration.
func TestTheLastInstanceIsKept(t *testing.T) {
	for name, made := range map[string]spec.ContainerType{"copy": spec.LXD, "machine": spec.Incus} {
		b := newBench(t)
		b.declare(name, spec.MigrationMoving)
		b.add(b.incus, name, made, containerbroker.StatusStopped)
		b.passes(1)
		b.want(name, spec.MigrationFailed, false, true)
	}
}

// An instance in Incus that is in use is no copy that an attempt left.
func TestAnInstanceInUseIsNoCopy(t *testing.T) {
	for name, i := range map[string]struct {
		made   spec.ContainerType
		status containerbroker.Status
	}{
		"started": {spec.LXD, containerbroker.StatusRunning},
		"frozen":  {spec.LXD, containerbroker.StatusFrozen},
		"managed": {spec.Incus, containerbroker.StatusStopped},
	} {
		b := newBench(t)
		b.declare(name, spec.MigrationMoving)
		b.add(b.lxd, name, spec.LXD, containerbroker.StatusRunning)
		b.add(b.incus, name, i.made, i.status)
		b.passes(1)
		if b.want(name, spec.MigrationFailed, true, true); b.copies > 0 || !b.said(name, "incus/"+name) {
			t.Errorf("%s: copied %d times", name, b.copies)
		}
	}
	// A user made the copy, or started it, worked in it and stopped it. The original may
	// have started again since then.
	for name, c := range map[string]struct {
		phase          spec.MigrationPhase
		last           time.Time // the time of the last attempt
		original, copy time.Time // the times of the last starts
	}{
		"worked":    {spec.MigrationMoving, t0, t0.Add(-time.Hour), t0.Add(time.Hour)},
		"again":     {spec.MigrationMoving, t0, t0.Add(2 * time.Hour), t0.Add(time.Hour)},
		"imported":  {spec.MigrationWaiting, time.Time{}, t0.Add(-time.Hour), t0.Add(-2 * time.Hour)},
		"unstarted": {spec.MigrationWaiting, time.Time{}, t0.Add(-time.Hour), t0.Add(-time.Hour)},
		"taken":     {spec.MigrationWaiting, t0.Add(-3 * time.Hour), t0.Add(-time.Hour), t0.Add(-2 * time.Hour)},
	} {
		b := newBench(t)
		b.declare(name, c.phase)
		r, status := b.machine(name)
		r.Migration.Began = c.last
		b.write(machineID(name), r, status)
		b.add(b.lxd, name, spec.LXD, containerbroker.StatusRunning)
		b.add(b.incus, name, spec.LXD, containerbroker.StatusStopped)
		b.lxd.Change(name, func(i *containerbroker.Instance) { i.Started = c.original })
		b.incus.Change(name, func(i *containerbroker.Instance) { i.Started = c.copy })
		b.passes(1)
		if b.want(name, spec.MigrationFailed, true, true); b.copies > 0 || !b.said(name, "incus/"+name) {
			t.Errorf("%s: copied %d times", name, b.copies)
		}
	}

	b := newBench(t)
	b.declare("left", spec.MigrationMoving)
	b.add(b.lxd, "left", spec.LXD, containerbroker.StatusRunning)
	b.add(b.incus, "left", spec.LXD, containerbroker.StatusStopped)
	b.passes(1)
	b.want("left", spec.MigrationMoved, true, true)
}

// On a copy of a host, and while records may be missing, no phase of a migration
// deletes or stops an instance. Afterwards the migrations go on.
func TestMigrationsWaitWhileNothingMayBeDeleted(t *testing.T) {
	b := newBench(t)
	b.declare("first", spec.MigrationMoved)
	b.declare("next", spec.MigrationMoving)
	b.declare("last", spec.MigrationWaiting)
	for _, name := range []string{"first", "next", "last"} {
		b.add(b.lxd, name, spec.LXD, containerbroker.StatusRunning)
	}
	b.lxd.Change("first", func(i *containerbroker.Instance) { i.Status = containerbroker.StatusStopped })
	b.add(b.incus, "first", spec.Incus, containerbroker.StatusRunning)
	b.add(b.incus, "next", spec.LXD, containerbroker.StatusStopped)
	host := reconcile.Host{Store: b.store}
	set := func(change func(*spec.Recovery)) {
		t.Helper()
		if err := host.Update(t.Context(), func(r *spec.HostRecord, _ *spec.HostStatus) { change(&r.Recovery) }); err != nil {
			t.Fatal(err)
		}
	}
	for _, withhold := range []func(*spec.Recovery){
		func(r *spec.Recovery) { r.Machine, r.CopiedTo = "one", "two" },
		func(r *spec.Recovery) { r.Machine, r.CopiedTo, r.Pending = "", "", []string{string(spec.LXD)} },
		func(r *spec.Recovery) { r.Pending = []string{string(spec.Incus)} },
	} {
		set(withhold)
		b.lxd.Forget()
		b.incus.Forget()
		b.passes(3)
		b.want("first", spec.MigrationMoved, true, true)
		b.want("next", spec.MigrationMoving, true, true)
		b.want("last", spec.MigrationWaiting, true, false)
		if r, _ := b.machine("last"); !strings.HasPrefix(r.Migration.Waits, "waits for ") {
			t.Errorf("the last machine waits for %q", r.Migration.Waits)
		}
		if did := slices.Concat(b.lxd.Operations(), b.incus.Operations()); len(did) > 0 {
			t.Errorf("operations %q", did)
		}
	}
	set(func(r *spec.Recovery) { r.Pending = nil })
	b.passes(1)
	b.want("first", spec.MigrationDone, false, true)
	b.want("next", spec.MigrationMoved, true, true)
	b.want("last", spec.MigrationWaiting, true, false)
}

// A waiting machine's record says what it waits for, until its move begins. Each
// reason is written once.
func TestAWaitingMachineSaysWhy(t *testing.T) {
	b := newBench(t)
	b.write(state.ID{Kind: spec.KindContainerType, Name: string(spec.Incus)}, nil, spec.TypeStatus{State: "initialising"})
	b.declare("web", spec.MigrationWaiting)
	b.add(b.lxd, "web", spec.LXD, containerbroker.StatusRunning)
	b.passes(1)
	before, err := b.store.Get(t.Context(), machineID("web"))
	if err != nil {
		t.Fatal(err)
	}
	b.passes(1)
	if after, err := b.store.Get(t.Context(), machineID("web")); err != nil || after.Revision != before.Revision {
		t.Errorf("revision %d became %d, %v", before.Revision, after.Revision, err)
	}
	if r, _ := b.machine("web"); r.Migration.Waits != "waits until the host is ready for incus machines" {
		t.Errorf("it waits for %q", r.Migration.Waits)
	}
	b.write(state.ID{Kind: spec.KindContainerType, Name: string(spec.Incus)}, nil, spec.TypeStatus{State: "ready"})
	b.passes(1)
	if r, _ := b.machine("web"); r.Migration.Phase != spec.MigrationMoving || r.Migration.Waits != "" {
		t.Errorf("it is %s and waits for %q", r.Migration.Phase, r.Migration.Waits)
	}
}

// A document may give a machine an image that only LXD has after its migration
// was asked for. The machine stays in LXD, whatever the phase.
func TestAnImageOfTheOldTypeKeepsTheMachine(t *testing.T) {
	for _, phase := range []spec.MigrationPhase{spec.MigrationWaiting, spec.MigrationMoving} {
		b := newBench(t)
		b.declare("web", phase)
		b.add(b.lxd, "web", spec.LXD, containerbroker.StatusRunning)
		r, s := b.machine("web")
		r.Machine.Image = "lxd:mine"
		s.ObservedGeneration = 2
		b.write(machineID("web"), r, s)
		b.passes(1)
		b.want("web", spec.MigrationFailed, true, false)
		if !b.said("web", "its image lxd:mine is in the own store of lxd") || b.copies > 0 {
			t.Errorf("%s: copied %d times, or no event", phase, b.copies)
		}
	}
}

// An original that was started during the copy has newer data than the copy.
func TestAnOriginalStartedDuringItsCopyStays(t *testing.T) {
	b := newBench(t)
	b.declare("web", spec.MigrationMoving)
	b.add(b.lxd, "web", spec.LXD, containerbroker.StatusRunning)
	b.during = func() {
		if err := b.lxd.SetPower(t.Context(), "web", containerbroker.PowerStart, 0); err != nil {
			t.Error(err)
		}
	}
	b.passes(1)
	if b.want("web", spec.MigrationFailed, true, false); !b.said("web", "started during its copy") {
		t.Error("no event")
	}
}

// The agent keeps an original that may hold data which the machine lacks, and
// says so.
func TestAnOriginalWithOtherDataIsKept(t *testing.T) {
	for name, change := range map[string]func(b *bench, s *spec.MachineStatus){
		"started": func(b *bench, _ *spec.MachineStatus) {
			b.lxd.Change("started", func(i *containerbroker.Instance) { i.Status = containerbroker.StatusRunning })
		},
		"stopped again": func(b *bench, _ *spec.MachineStatus) {
			b.lxd.Change("stopped again", func(i *containerbroker.Instance) { i.Started = t0.Add(time.Minute) })
		},
		"recreated": func(_ *bench, s *spec.MachineStatus) { s.Instance.Token = "another" },
	} {
		b := newBench(t)
		b.declare(name, spec.MigrationMoved)
		b.add(b.lxd, name, spec.Incus, containerbroker.StatusStopped)
		b.add(b.incus, name, spec.Incus, containerbroker.StatusRunning)
		r, s := b.machine(name)
		change(b, &s)
		b.write(machineID(name), r, s)
		b.passes(1)
		if b.want(name, spec.MigrationDone, true, true); !b.said(name, "lxd/"+name+" is kept") {
			t.Errorf("%s: no event", name)
		}
	}
}
