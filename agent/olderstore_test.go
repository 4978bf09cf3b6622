package agent

import (
	"fmt"
	"slices"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// starts are the ways in which an agent may start, and write to the store,
// before LXD's instances are compared with it.
var starts = map[string]func(l *lossyHost){
	"the host was restarted": func(l *lossyHost) {
		l.boot = "another boot"
		l.open()
	},
	"the agent restarts before LXD answers": func(l *lossyHost) {
		for range 3 {
			l.open()
			l.seen(30)
			l.close()
		}
		l.open()
	},
	"the host was restarted and the agent restarts before LXD answers": func(l *lossyHost) {
		l.boot = "another boot"
		l.open()
		l.close()
		l.open()
	},
	"the records may be old and the agent restarts before LXD answers": func(l *lossyHost) {
		removeStore(l.t, l.dir+"/state/store-id")
		removeStore(l.t, l.dir+"/state/store-mark")
		l.open()
		l.seen(30)
		l.close()
		l.open()
	},
}

// seen writes the status of machine/kept as often as the given number. Each
// write takes a revision.
func (l *lossyHost) seen(times int) {
	l.t.Helper()
	for i := range times {
		if _, err := l.store.Write(l.t.Context(), state.Atomic, state.Write{
			ID: state.ID{Kind: spec.KindMachine, Name: "kept"}, Revision: state.AnyRevision,
			Status: spec.Encode(spec.MachineStatus{State: spec.MachineRunning, Message: fmt.Sprint(i), Instance: &spec.InstanceInfo{Name: "kept"}}),
		}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// putBack leaves an older copy of the store in place of the store. machine/later
// was made in the opening of the copy, machine/last in the opening after it.
func (l *lossyHost) putBack() {
	l.t.Helper()
	l.begin()
	l.made("kept")
	for i := range 20 {
		l.made(fmt.Sprintf("also-%d", i))
		if _, err := l.store.Write(l.t.Context(), state.Atomic, state.Write{
			ID: state.ID{Kind: spec.KindMachine, Name: fmt.Sprintf("also-%d", i)}, Revision: state.AnyRevision,
			Status: spec.Encode(spec.MachineStatus{State: spec.MachineRunning, Instance: &spec.InstanceInfo{Name: fmt.Sprintf("also-%d", i)}}),
		}); err != nil {
			l.t.Fatal(err)
		}
	}
	l.seen(1)
	l.copyState("state", "copy")
	l.made("later")
	l.close()
	l.begin()
	l.made("last")
	l.close()
	l.copyState("copy", "state")
	l.disk.well.Store(true)
}

// olderStores returns the number of events about an older copy.
func (l *lossyHost) olderStores() (count int) {
	l.t.Helper()
	events, err := l.store.Events(l.t.Context(), state.EventQuery{Object: &state.ID{Kind: spec.KindHost, Name: spec.HostName}})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, e := range events {
		if e.Reason == "OlderStore" {
			count++
		}
	}
	return count
}

// Writes to an older copy before the first comparison do not hide its age.
func TestAnOlderCopyIsFoundOutAfterItWasWritten(t *testing.T) {
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			l := newLossyHost(t)
			l.putBack()
			start(l)
			if names := l.harvested(); len(names) > 0 {
				t.Errorf("%v would be harvested before the store is compared", names)
			}
			if err := l.learn(t.Context(), spec.LXD); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if names := l.recorded(); !slices.Contains(names, "later") || !slices.Contains(names, "last") || len(names) != 23 {
					t.Errorf("the records are %v", names)
				}
				if names := l.harvested(); len(names) > 0 {
					t.Errorf("%v would be harvested", names)
				}
				if n := l.olderStores(); n != 1 {
					t.Errorf("%d events report an older copy", n)
				}
				l.close()
				l.begin()
			}
			l.close()
		})
	}
}

// An instance that stays without a record, because its name is taken, is never
// harvested after the recovery of a copy that was written.
func TestAWrittenOlderCopyHarvestsNoTakenNames(t *testing.T) {
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			l := newLossyHost(t)
			l.putBack()
			start(l)
			record := spec.MachineRecord{Header: spec.Header{Declaration: "new"}, Machine: spec.Machine{Type: spec.KVM, Image: "debian/12"}}
			for _, name := range []string{"later", "last"} {
				if _, err := l.store.Write(t.Context(), state.Atomic, state.Write{ID: state.ID{Kind: spec.KindMachine, Name: name}, Spec: spec.Encode(record), Life: state.Alive}); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.learn(t.Context(), spec.LXD); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if names := l.harvested(); len(names) > 0 {
					t.Errorf("%v would be harvested", names)
				}
				l.close()
				l.begin()
			}
			l.close()
		})
	}
}

// An instance that is made before the first comparison, or between two
// restarts without a comparison, does not prove an older copy. It is harvested
// after the comparison, and never before.
func TestInstancesMadeBeforeTheComparisonAreNoProof(t *testing.T) {
	l := newLossyHost(t)
	l.begin()
	l.made("kept")
	l.close()
	for i := range 3 {
		l.open()
		l.made(fmt.Sprintf("early-%d", i))
		l.made(fmt.Sprintf("stray-%d", i))
		id := state.ID{Kind: spec.KindMachine, Name: fmt.Sprintf("stray-%d", i)}
		if _, err := l.store.Write(t.Context(), state.Atomic, state.Write{ID: id, Revision: state.AnyRevision, Delete: true}); err != nil {
			t.Fatal(err)
		}
		l.close()
	}
	l.open()
	defer func() { l.close() }()
	strays := []string{"stray-0", "stray-1", "stray-2"}
	for _, when := range []string{"before the comparison", "after it", "started again"} {
		want := strays
		if when == "before the comparison" {
			want = nil
		}
		names := l.harvested()
		if slices.Sort(names); !slices.Equal(names, want) {
			t.Errorf("%s: %v would be harvested", when, names)
		}
		if n := l.olderStores(); n != 0 {
			t.Errorf("%s: %d events report an older copy", when, n)
		}
		if when == "after it" {
			l.close()
			l.open()
		}
		if err := l.learn(t.Context(), spec.LXD); err != nil {
			t.Fatal(err)
		}
	}
}
