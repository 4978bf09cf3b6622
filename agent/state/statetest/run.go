// Package statetest is the conformance suite that every implementation of the
// store passes.
package statetest

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"hostler/agent/state"
	"hostler/internal/fault"
)

// waitLimit bounds every wait of the suite.
const waitLimit = 10 * time.Second

// Run tests an implementation. open returns a new, empty store, which is closed
// at the end of the test.
func Run(t *testing.T, open func(*testing.T) state.Backend) {
	for _, c := range []struct {
		name string
		test func(*testing.T, state.Backend)
	}{
		{"Create", testCreate},
		{"CompareAndSwap", testCompareAndSwap},
		{"Generation", testGeneration},
		{"NoChange", testNoChange},
		{"Delete", testDelete},
		{"Refused", testRefused},
		{"Atomic", testAtomic},
		{"Each", testEach},
		{"Relaxed", testRelaxed},
		{"List", testList},
		{"Race", testRace},
		{"WatchFirst", testWatchFirst},
		{"WatchChanges", testWatchChanges},
		{"WatchCoalesces", testWatchCoalesces},
		{"WatchEnds", testWatchEnds},
		{"WatchMissesNothing", testWatchMissesNothing},
		{"Journal", testJournal},
		{"Events", testEvents},
		{"WatchEvents", testWatchEvents},
		{"CancelledCalls", testCancelled},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
	t.Run("Model", func(t *testing.T) { testModel(t, open) })
}

func machine(name string) state.ID { return state.ID{Kind: "machine", Name: name} }

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// Write makes a write that must succeed.
func Write(t testing.TB, b state.Store, w state.Write) state.Object {
	t.Helper()
	results, err := b.Write(t.Context(), state.Each, w)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || results[0].Err != nil {
		t.Fatalf("results: %+v", results)
	}
	return results[0].Object
}

func create(t *testing.T, b state.Backend, name string) state.Object {
	t.Helper()
	return Write(t, b, state.Write{ID: machine(name), Spec: raw(`{"a":1}`)})
}

// refuse makes a write, in both modes, that must be refused with the kind and
// must change nothing.
func refuse(t *testing.T, b state.Backend, kind fault.Kind, w state.Write) {
	t.Helper()
	_, before, err := b.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	results, err := b.Write(t.Context(), state.Each, w)
	if err != nil || len(results) != 1 || !fault.Is(results[0].Err, kind) {
		t.Errorf("each %+v: got %+v, %v; want %s", w, results, err, kind)
	}
	if _, err := b.Write(t.Context(), state.Atomic, w); !fault.Is(err, kind) {
		t.Errorf("atomic %+v: got %v; want %s", w, err, kind)
	}
	if _, after, err := b.List(t.Context()); err != nil || after != before {
		t.Errorf("a refused write moved the revision from %d to %d (%v)", before, after, err)
	}
}

func getWeb(t *testing.T, b state.Backend) state.Object {
	t.Helper()
	o, err := b.Get(t.Context(), machine("web"))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func same(a, b state.Object) bool {
	return a.ID == b.ID && a.UID == b.UID && a.Revision == b.Revision && a.Generation == b.Generation &&
		a.Life == b.Life && string(a.Spec) == string(b.Spec) && string(a.Status) == string(b.Status) &&
		a.Created.Equal(b.Created) && a.Updated.Equal(b.Updated)
}

func watch(t *testing.T, b state.Backend, kinds ...string) <-chan []state.ID {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ch, err := b.Watch(ctx, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// next returns the next batch. If none comes, the test fails.
func next(t *testing.T, ch <-chan []state.ID) []state.ID {
	t.Helper()
	select {
	case ids, ok := <-ch:
		if !ok {
			t.Fatal("the watch was lost")
		}
		return ids
	case <-time.After(waitLimit):
		t.Fatal("nothing came from the watch")
	}
	return nil
}

// WantEnd waits for the end of a watch. The test fails if ids come before.
func WantEnd(t testing.TB, ch <-chan []state.ID) {
	t.Helper()
	deadline := time.After(waitLimit)
	for {
		select {
		case ids, ok := <-ch:
			if !ok {
				return
			}
			if len(ids) != 0 {
				t.Errorf("ids from nowhere: %v", ids)
			}
		case <-deadline:
			t.Fatal("the watch goes on")
		}
	}
}

// gather reads batches until all ids in want have come. If another id comes,
// the test fails.
func gather(t *testing.T, ch <-chan []state.ID, want ...state.ID) {
	t.Helper()
	missing := slices.Clone(want)
	for len(missing) > 0 {
		for _, id := range next(t, ch) {
			if !slices.Contains(want, id) {
				t.Fatalf("unexpected %v", id)
			}
			missing = slices.DeleteFunc(missing, func(m state.ID) bool { return m == id })
		}
	}
}
