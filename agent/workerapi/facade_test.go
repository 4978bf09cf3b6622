package workerapi

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/state/statetest"
	"hostler/internal/fault"
)

// A3: the instance of a machine is written once, where none is recorded, and
// only a status without it clears it.
func TestA3InstanceIsWrittenOnce(t *testing.T) {
	b, l := workerBench(t)
	o := declareMachine(t, l, "web", spec.LXD)
	s := b.worker(t, "lxd")
	write := func(st spec.MachineState, instance *spec.InstanceInfo) error {
		t.Helper()
		status := spec.Encode(spec.MachineStatus{State: st, Instance: instance})
		_, err := s.Write(t.Context(), state.Atomic, state.Write{ID: o.ID, UID: o.UID, Revision: state.AnyRevision, Status: status})
		return err
	}
	one := &spec.InstanceInfo{Name: "web", Token: "one"}
	for i, c := range []struct {
		state    spec.MachineState
		instance *spec.InstanceInfo
		want     fault.Kind
	}{
		{spec.MachineProvisioning, nil, ""},
		{spec.MachineProvisioning, one, ""},
		{spec.MachineRunning, one, ""},
		{spec.MachineRunning, &spec.InstanceInfo{Name: "web", Token: "two"}, fault.Conflict},
		{spec.MachineRunning, &spec.InstanceInfo{Name: "other", Token: "one"}, fault.Conflict},
		{spec.MachineRunning, nil, fault.Conflict},
		{spec.MachinePending, nil, ""},
		{spec.MachineProvisioning, &spec.InstanceInfo{Name: "web", Token: "two"}, ""},
	} {
		if got := fault.KindOf(write(c.state, c.instance)); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

// A3: of two simultaneous writes of an instance a single write succeeds.
func TestA3InstanceRace(t *testing.T) {
	b, l := workerBench(t)
	o := declareMachine(t, l, "web", spec.LXD)
	s := b.worker(t, "lxd")
	const racers = 8
	errs := make(chan error, racers)
	for i := range racers {
		go func() {
			status := spec.Encode(spec.MachineStatus{State: spec.MachineRunning, Instance: &spec.InstanceInfo{Name: "web", Token: fmt.Sprint(i)}})
			results, err := s.Write(context.WithoutCancel(t.Context()), state.Each, state.Write{ID: o.ID, Revision: state.AnyRevision, Status: status})
			if err == nil {
				err = results[0].Err
			}
			errs <- err
		}()
	}
	won := 0
	for range racers {
		if err := <-errs; err == nil {
			won++
		} else if !fault.Is(err, fault.Conflict) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
}

// A4: an error of the instance and the machine's state are written together: no
// reader sees the first without the second.
func TestA4ErrorIsOneWrite(t *testing.T) {
	b, l := workerBench(t)
	o := declareMachine(t, l, "web", spec.LXD)
	s := b.worker(t, "lxd")
	_, before, _ := l.List(t.Context())
	status := spec.MachineStatus{
		State: spec.MachineError, Message: "no space", Attempts: spec.Attempts{Count: 3, ErrorKind: string(fault.Transient)},
		Conditions: []spec.Condition{{Type: "ready", Reason: "CreateFailed"}},
	}
	if _, err := s.Write(t.Context(), state.Each, state.Write{ID: o.ID, Revision: state.AnyRevision, Status: spec.Encode(status)}); err != nil {
		t.Fatal(err)
	}
	if _, after, _ := l.List(t.Context()); after != before+1 {
		t.Errorf("%d revisions", after-before)
	}
}

// A8: the progress of applying profiles has a condition of its own, which
// affects neither the machine's state nor its instance.
func TestA8ModificationHasItsOwnCondition(t *testing.T) {
	b, l := workerBench(t)
	o := declareMachine(t, l, "web", spec.LXD)
	status := spec.MachineStatus{State: spec.MachineRunning, Instance: &spec.InstanceInfo{Name: "web", Token: "t"}}
	setStatus(t, l, "web", status)
	status.Conditions = spec.SetCondition(status.Conditions, spec.Condition{Type: "modified", Reason: "ProfileFailed", Message: "no such device"})
	s := b.worker(t, "lxd")
	if _, err := s.Write(t.Context(), state.Atomic, state.Write{ID: o.ID, Revision: state.AnyRevision, Status: spec.Encode(status)}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), o.ID)
	var kept spec.MachineStatus
	if err != nil || json.Unmarshal(got.Status, &kept) != nil || kept.State != spec.MachineRunning || kept.Instance == nil || len(kept.Conditions) != 1 {
		t.Errorf("kept %+v, %v", kept, err)
	}
	if got.Generation != o.Generation {
		t.Error("a status moved the generation")
	}
}

// A9: a watch sends the ids of the type's machines: first all, then changes and
// removals. Without a type it sends those of all machines.
func TestA9WatchByTypeAndOfAll(t *testing.T) {
	b, l := workerBench(t)
	a := declareMachine(t, l, "a", spec.LXD)
	declareMachine(t, l, "k", spec.KVM)
	next := func(ch <-chan []state.ID) []state.ID {
		t.Helper()
		select {
		case ids, ok := <-ch:
			if !ok {
				t.Fatal("the watch was lost")
			}
			return ids
		case <-time.After(10 * time.Second):
			t.Fatal("nothing came")
		}
		return nil
	}
	lxd, err := b.worker(t, "lxd").Watch(t.Context(), spec.KindMachine)
	if err != nil {
		t.Fatal(err)
	}
	all, err := b.worker(t, "").Watch(t.Context(), spec.KindMachine)
	if err != nil {
		t.Fatal(err)
	}
	lxc, err := b.worker(t, "lxc").Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if ids := next(lxd); len(ids) != 1 || ids[0] != a.ID {
		t.Errorf("lxd first: %v", ids)
	}
	if ids := next(all); len(ids) != 2 {
		t.Errorf("all first: %v", ids)
	}
	if ids := next(lxc); len(ids) != 0 {
		t.Errorf("lxc first: %v", ids)
	}
	setStatus(t, l, "k", spec.MachineStatus{State: spec.MachineError})
	if ids := next(all); len(ids) != 1 || ids[0] != machineID("k") {
		t.Errorf("all: %v", ids)
	}
	statetest.Write(t, l, state.Write{ID: a.ID, Revision: state.AnyRevision, Delete: true})
	if ids := next(lxd); len(ids) != 1 || ids[0] != a.ID {
		t.Errorf("lxd after the removal: %v", ids)
	}
	// More ids at once than the threshold of look.
	for i := range 30 {
		ct := spec.LXD
		if i%2 == 1 {
			ct = spec.KVM
		}
		declareMachine(t, l, fmt.Sprintf("m%d", i), ct)
	}
	seen := map[state.ID]bool{}
	for len(seen) < 15 {
		for _, id := range next(lxd) {
			seen[id] = true
		}
	}
	for id := range seen {
		if o, err := l.Get(t.Context(), id); err != nil || !restrict(l, spec.LXD).own(o) {
			t.Errorf("%v is not lxd's", id)
		}
	}
	if _, err := b.worker(t, "lxd").Watch(t.Context(), "declaration"); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a watch of declarations: %v", err)
	}
}
