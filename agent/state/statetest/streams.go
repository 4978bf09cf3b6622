package statetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"hostler/agent/state"
	"hostler/internal/fault"
)

func testWatchFirst(t *testing.T, b state.Backend) {
	if ids := next(t, watch(t, b)); len(ids) != 0 {
		t.Errorf("an empty store: %v", ids)
	}
	create(t, b, "a")
	create(t, b, "b")
	Write(t, b, state.Write{ID: state.ID{Kind: "volume", Name: "v"}})
	if ids := next(t, watch(t, b, "machine")); len(ids) != 2 || ids[0] != machine("a") || ids[1] != machine("b") {
		t.Errorf("machines: %v", ids)
	}
	if ids := next(t, watch(t, b)); len(ids) != 3 {
		t.Errorf("all: %v", ids)
	}
}

func testWatchChanges(t *testing.T, b state.Backend) {
	ch := watch(t, b, "machine", "host")
	next(t, ch)
	o := create(t, b, "a")
	gather(t, ch, o.ID)
	Write(t, b, state.Write{ID: state.ID{Kind: "volume", Name: "v"}})
	Write(t, b, state.Write{ID: o.ID, Revision: state.AnyRevision, Status: raw(`{"s":1}`)})
	gather(t, ch, o.ID)
	Write(t, b, state.Write{ID: o.ID, Revision: state.AnyRevision, Delete: true})
	gather(t, ch, o.ID)
}

// testWatchCoalesces has a reader that does not read for a while. Writers must
// not wait for the reader, and it must not get every change.
func testWatchCoalesces(t *testing.T, b state.Backend) {
	o := create(t, b, "a")
	ch := watch(t, b)
	next(t, ch)
	const changes = 200
	for i := range changes {
		Write(t, b, state.Write{ID: o.ID, Revision: state.AnyRevision, Spec: raw(fmt.Sprintf(`{"n":%d}`, i))})
	}
	create(t, b, "z")
	batches := 0
	for {
		ids := next(t, ch)
		batches++
		seen := map[state.ID]bool{}
		for _, id := range ids {
			if seen[id] {
				t.Errorf("twice in a batch: %v", ids)
			}
			seen[id] = true
		}
		if slices.Contains(ids, machine("z")) {
			break
		}
	}
	// The socket's stream holds some batches; most changes must be coalesced.
	if batches > changes/2 {
		t.Errorf("%d batches for %d changes", batches, changes)
	}
}

func testWatchEnds(t *testing.T, b state.Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := b.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	signs, err := b.WatchEvents(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	deadline := time.After(waitLimit)
	for ch != nil || signs != nil {
		select {
		case _, ok := <-ch:
			if !ok {
				ch = nil
			}
		case _, ok := <-signs:
			if !ok {
				signs = nil
			}
		case <-deadline:
			t.Fatal("a watch outlives its context")
		}
	}
}

// testWatchMissesNothing begins watches while objects are created. Each watch
// must report every object, in its first or a later batch.
func testWatchMissesNothing(t *testing.T, b state.Backend) {
	const objects = 30
	want := make([]state.ID, objects)
	for i := range want {
		want[i] = machine(fmt.Sprintf("m%d", i))
	}
	go func() {
		for _, id := range want {
			if _, err := b.Write(t.Context(), state.Atomic, state.Write{ID: id}); err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		}
	}()
	for range 5 {
		gather(t, watch(t, b), want...)
	}
}

func testJournal(t *testing.T, b state.Backend) {
	began := time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC)
	first := state.Intent{Token: "t1", Object: machine("b"), UID: "u1", Action: "create", Began: began, Owner: "lxd"}
	second := state.Intent{Token: "t2", Object: machine("a"), UID: "u2", Action: "delete", Began: began.Add(-time.Hour)}
	for _, in := range []state.Intent{first, second} {
		if err := b.Begin(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Begin(t.Context(), state.Intent{Token: "t1", Object: machine("c")}); !fault.Is(err, fault.Conflict) {
		t.Errorf("the same token twice: %v", err)
	}
	if err := b.Begin(t.Context(), state.Intent{Object: machine("c")}); !fault.Is(err, fault.Invalid) {
		t.Errorf("no token: %v", err)
	}
	expect := func(want ...state.Intent) {
		t.Helper()
		got, err := b.Intents(t.Context())
		if err != nil || len(got) != len(want) {
			t.Fatalf("intents %+v, %v; want %+v", got, err, want)
		}
		for i := range want {
			if !got[i].Began.Equal(want[i].Began) {
				t.Errorf("began %v, want %v", got[i].Began, want[i].Began)
			}
			got[i].Began = want[i].Began
			if got[i] != want[i] {
				t.Errorf("intent %+v, want %+v", got[i], want[i])
			}
		}
	}
	expect(first, second)
	if err := b.End(t.Context(), "t1", "never"); err != nil {
		t.Fatal(err)
	}
	expect(second)
	if err := b.End(t.Context(), "t1", "t2", "t2"); err != nil {
		t.Fatal(err)
	}
	expect()
	if err := b.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Begin(t.Context(), state.Intent{Token: "t1", Object: machine("b")}); err != nil {
		t.Errorf("an ended token: %v", err)
	}
	if got, err := b.Intents(t.Context()); err != nil || len(got) != 1 || got[0].Began.IsZero() {
		t.Errorf("intents %+v, %v", got, err)
	}
}

func testEvents(t *testing.T, b state.Backend) {
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	next := at.Add(time.Minute)
	err := b.Record(t.Context(),
		state.Event{Time: at, Object: machine("a"), UID: "u", Level: state.LevelWarn, Reason: "Slow", Message: "one", Attempt: 2, Limit: 7, NextRetry: &next},
		state.Event{Object: machine("b"), Reason: "Created", Message: "two"},
		state.Event{Object: state.ID{Kind: "volume", Name: "a"}, Reason: "Created", Message: "three"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Record(t.Context(), state.Event{Object: machine("a"), Reason: "Started", Message: "four"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Record(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := b.Events(t.Context(), state.EventQuery{})
	if err != nil || len(all) != 4 {
		t.Fatalf("events %+v, %v", all, err)
	}
	first := all[0]
	if !first.Time.Equal(at) || first.Object != machine("a") || first.UID != "u" || first.Level != state.LevelWarn || first.Reason != "Slow" {
		t.Errorf("first: %+v", first)
	}
	if first.Attempt != 2 || first.Limit != 7 || first.NextRetry == nil || !first.NextRetry.Equal(next) {
		t.Errorf("the retry of the first: %+v", first)
	}
	if all[1].Attempt != 0 || all[1].NextRetry != nil {
		t.Errorf("the second has a retry: %+v", all[1])
	}
	if all[1].Time.IsZero() || all[1].Level != state.LevelInfo {
		t.Errorf("second: %+v", all[1])
	}
	a := machine("a")
	for _, c := range []struct {
		q    state.EventQuery
		want string
	}{
		{state.EventQuery{}, "[one two three four]"},
		{state.EventQuery{After: all[1].Seq}, "[three four]"},
		{state.EventQuery{Object: &a}, "[one four]"},
		{state.EventQuery{Object: &state.ID{Kind: "machine"}}, "[one two four]"},
		{state.EventQuery{Limit: 2}, "[one two]"},
		{state.EventQuery{After: all[3].Seq}, "[]"},
	} {
		events, err := b.Events(t.Context(), c.q)
		messages := []string{}
		last := int64(0)
		for _, e := range events {
			messages = append(messages, e.Message)
			if e.Seq <= last {
				t.Errorf("seq %d after %d", e.Seq, last)
			}
			last = e.Seq
		}
		if got := fmt.Sprint(messages); err != nil || got != c.want {
			t.Errorf("%+v: %s, %v; want %s", c.q, got, err, c.want)
		}
	}
}

func testWatchEvents(t *testing.T, b state.Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	signs, err := b.WatchEvents(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Each round ends when the event is seen; one signal may cover several events.
	seen := int64(0)
	for i := range 5 {
		if err := b.Record(t.Context(), state.Event{Object: machine("a"), Reason: "Tick"}); err != nil {
			t.Fatal(err)
		}
		for found := false; !found; {
			select {
			case _, ok := <-signs:
				if !ok {
					t.Fatal("the watch was lost")
				}
			case <-time.After(waitLimit):
				t.Fatalf("no sign of event %d", i)
			}
			events, err := b.Events(t.Context(), state.EventQuery{After: seen})
			if err != nil {
				t.Fatal(err)
			}
			if found = len(events) > 0; found {
				seen = events[len(events)-1].Seq
			}
		}
	}
}

func testCancelled(t *testing.T, b state.Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Write(ctx, state.Atomic, state.Write{ID: machine("a")}); err == nil {
		t.Error("a cancelled write went well")
	}
	if _, _, err := b.List(ctx); err == nil {
		t.Error("a cancelled list went well")
	}
	if objects, _, err := b.List(t.Context()); err != nil || len(objects) != 0 {
		t.Errorf("afterwards: %v, %v", objects, err)
	}
}
