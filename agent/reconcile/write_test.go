package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/hosttest"
)

// written is a store whose writes of an object have the set results.
type written struct {
	state.Backend
	results map[string]error
	writes  []state.Write
	events  []state.Event
}

func (s *written) Write(_ context.Context, _ state.Mode, writes ...state.Write) ([]state.Result, error) {
	var results []state.Result
	for _, w := range writes {
		s.writes = append(s.writes, w)
		results = append(results, state.Result{Object: state.Object{ID: w.ID, Revision: int64(len(s.writes))}, Err: s.results[w.Name]})
	}
	return results, s.results[""]
}

func (s *written) Get(_ context.Context, id state.ID) (state.Object, error) {
	for i := len(s.writes) - 1; i >= 0; i-- {
		if s.writes[i].ID == id {
			return state.Object{ID: id, Revision: int64(i + 1)}, nil
		}
	}
	return state.Object{}, fault.New(fault.NotFound, "no %s", id.Name)
}

func (s *written) Record(ctx context.Context, events ...state.Event) error {
	s.events = append(s.events, events...)
	return ctx.Err()
}

// Only changed statuses are written, each on its own: an object that is gone or
// replaced is no error.
func TestWrites(t *testing.T) {
	store := &written{results: map[string]error{"gone": fault.New(fault.NotFound, "gone"), "other": fault.New(fault.Conflict, "replaced")}}
	f := NewFrame(Common{Store: store, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	id := func(name string) state.ID { return state.ID{Kind: "thing", Name: name} }
	old := spec.TypeStatus{State: "old"}
	var b Batch
	b.Status(id("same"), "1", old, old)
	b.Status(id("gone"), "2", old, spec.TypeStatus{State: "new"})
	b.Status(id("other"), "3", old, spec.TypeStatus{State: "new"})
	b.Status(id("unknown before"), "4", nil, old)
	b.Remove(id("removed"), "5")
	if err := f.Write(t.Context(), b); err != nil || len(store.writes) != 4 || !store.writes[3].Delete {
		t.Fatalf("%v, wrote %+v", err, store.writes)
	}
	for name, own := range map[string]bool{"gone": false, "unknown before": true, "never written": false} {
		if f.Own(t.Context(), id(name)) != own {
			t.Errorf("%s: own %v", name, !own)
		}
	}
	store.writes = append(store.writes, state.Write{ID: id("unknown before")})
	if f.Own(t.Context(), id("unknown before")) {
		t.Error("another process's write counts as own")
	}
	for _, name := range []string{"gone", ""} {
		store.results[name] = errors.New("disk full")
		if f.Write(t.Context(), b) == nil || f.Put(t.Context(), b[0]) == nil {
			t.Errorf("an error of %q is lost", name)
		}
	}
}

// Events are recorded although the agent stops, with the present time.
func TestRecord(t *testing.T) {
	store, now := &written{}, time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	f := NewFrame(Common{Store: store, Now: func() time.Time { return now }})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.Record(ctx)
	f.Record(ctx, state.Event{Reason: "Ready"})
	if len(store.events) != 1 || store.events[0].Time != now {
		t.Errorf("%+v", store.events)
	}
}

// An object is decoded again when its revision changes, and forgotten with it.
func TestCache(t *testing.T) {
	decoded := 0
	decode := func(o state.Object) (int64, error) { decoded++; return o.Revision, nil }
	c, o := Cache[int64]{}, state.Object{UID: "1", Revision: 7}
	for _, step := range []struct {
		change func()
		want   int
	}{{func() {}, 1}, {func() {}, 1}, {func() { o.Revision = 8 }, 2}, {func() { c.Keep([]state.Object{o}) }, 2}, {func() { c.Keep(nil) }, 3}} {
		step.change()
		v, err := c.Decode(o, decode)
		if asked := decoded == step.want; err != nil || v != o.Revision || !asked && !failpoint.Enabled { // such a build decodes all, to compare
			t.Errorf("%v %v, decoded %d times, want %d", v, err, decoded, step.want)
		}
	}
}

// A status that was written for an earlier generation hides no change of the
// declaration that came between the pass and the write.
func TestOwnWritesHideNoChange(t *testing.T) {
	store, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	f := NewFrame(Common{Store: store, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	id := state.ID{Kind: spec.KindNetwork, Name: "lan"}
	declare := func(bridge string, revision int64) {
		t.Helper()
		record := spec.Encode(spec.NetworkRecord{Network: spec.Network{Bridge: bridge}})
		if _, err := store.Write(t.Context(), state.Atomic, state.Write{ID: id, Revision: revision, Life: state.Alive, Spec: record}); err != nil {
			t.Fatal(err)
		}
	}
	report := func(message string, generation int64) {
		t.Helper()
		if err := f.Write(t.Context(), Batch{StatusWrite(id, "", spec.NetworkStatus{Message: message, ObservedGeneration: generation})}); err != nil {
			t.Fatal(err)
		}
	}
	declare("br-lan", 0)
	report("a", 1)
	if !f.Own(t.Context(), id) {
		t.Error("the worker's write is not its own")
	}
	declare("br-other", state.AnyRevision) // while a pass for the first generation runs
	report("b", 1)
	if f.Own(t.Context(), id) {
		t.Error("the change of the declaration is hidden")
	}
	report("c", 2)
	if !f.Own(t.Context(), id) {
		t.Error("the write for the changed declaration is not the worker's own")
	}
}
