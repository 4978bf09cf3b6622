package statetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"hostler/agent/state"
	"hostler/internal/fault"
)

func testCreate(t *testing.T, b state.Backend) {
	if _, err := b.Get(t.Context(), machine("web")); !fault.Is(err, fault.NotFound) {
		t.Fatalf("an absent object: %v", err)
	}
	made := create(t, b, "web")
	if made.UID == "" || made.Revision < 1 || made.Generation != 1 || made.Life != state.Alive || made.Status != nil {
		t.Errorf("made %+v", made)
	}
	if made.Created.IsZero() || !made.Updated.Equal(made.Created) {
		t.Errorf("times: created %v, updated %v", made.Created, made.Updated)
	}
	if got := getWeb(t, b); !same(got, made) {
		t.Errorf("got %+v, made %+v", got, made)
	}
	other := Write(t, b, state.Write{ID: machine("db"), UID: "given", Life: state.Dying, Status: raw(`{"s":1}`)})
	if other.UID != "given" || other.Life != state.Dying || string(other.Status) != `{"s":1}` || string(other.Spec) != "{}" {
		t.Errorf("made %+v", other)
	}
	if other.Revision <= made.Revision {
		t.Errorf("revision %d after %d", other.Revision, made.Revision)
	}
	refuse(t, b, fault.Conflict, state.Write{ID: machine("web")})
	// A name that is deleted and created again is a new object.
	Write(t, b, state.Write{ID: machine("web"), Revision: state.AnyRevision, Delete: true})
	if again := create(t, b, "web"); again.UID == made.UID || again.Revision <= other.Revision || again.Generation != 1 {
		t.Errorf("made again %+v", again)
	}
}

func testCompareAndSwap(t *testing.T, b state.Backend) {
	first := create(t, b, "web")
	second := Write(t, b, state.Write{ID: first.ID, Revision: first.Revision, Spec: raw(`{"a":2}`)})
	refuse(t, b, fault.Conflict, state.Write{ID: first.ID, Revision: first.Revision, Spec: raw(`{"a":3}`)})
	refuse(t, b, fault.Conflict, state.Write{ID: first.ID, Revision: second.Revision + 1, Spec: raw(`{"a":3}`)})
	refuse(t, b, fault.Conflict, state.Write{ID: first.ID, Revision: second.Revision, UID: "other", Spec: raw(`{"a":3}`)})
	refuse(t, b, fault.Conflict, state.Write{ID: machine("db"), Revision: 7, Spec: raw(`{"a":3}`)})
	refuse(t, b, fault.NotFound, state.Write{ID: machine("db"), Revision: state.AnyRevision, Spec: raw(`{"a":3}`)})
	third := Write(t, b, state.Write{ID: first.ID, Revision: state.AnyRevision, UID: first.UID, Spec: raw(`{"a":4}`)})
	if third.Revision <= second.Revision || third.UID != first.UID || !third.Created.Equal(first.Created) {
		t.Errorf("third %+v", third)
	}
}

func testGeneration(t *testing.T, b state.Backend) {
	o := create(t, b, "web")
	for _, step := range []struct {
		w    state.Write
		want int64
	}{
		{state.Write{Status: raw(`{"s":1}`)}, 1},
		{state.Write{Spec: raw(`{"a":2}`)}, 2},
		{state.Write{Spec: raw(`{"a":2}`), Status: raw(`{"s":2}`)}, 2},
		{state.Write{Life: state.Dying}, 3},
		{state.Write{Life: state.Dying, Status: raw(`null`)}, 3},
		{state.Write{Life: state.Dead, Spec: raw(`{"a":3}`)}, 4},
	} {
		step.w.ID, step.w.Revision = o.ID, o.Revision
		next := Write(t, b, step.w)
		if next.Generation != step.want || next.Revision <= o.Revision {
			t.Errorf("%+v: generation %d at revision %d, want %d", step.w, next.Generation, next.Revision, step.want)
		}
		if got := getWeb(t, b); !same(got, next) {
			t.Errorf("got %+v, want %+v", got, next)
		}
		o = next
	}
	if o.Status != nil {
		t.Errorf("null did not clear the status: %s", o.Status)
	}
}

func testNoChange(t *testing.T, b state.Backend) {
	o := Write(t, b, state.Write{ID: machine("web"), Spec: raw(`{"a":1,"b":"<&>\u2028"}`), Status: raw(`{"s":[1]}`)})
	ch := watch(t, b)
	next(t, ch)
	for _, w := range []state.Write{
		{Spec: raw(`{"a":1,"b":"<&>\u2028"}`)},
		{Spec: raw(`{ "b":"\u003c\u0026\u003e\u2028", "a": 1}`)},
		{Status: raw(`{"s": [1]}`)},
		{Life: state.Alive},
		{},
	} {
		w.ID, w.Revision = o.ID, o.Revision
		if got := Write(t, b, w); !same(got, o) {
			t.Errorf("%+v: got %+v, want %+v", w, got, o)
		}
	}
	if got := getWeb(t, b); !same(got, o) {
		t.Errorf("got %+v, want %+v", got, o)
	}
	// The watch reported no change, so its next batch is the next change.
	create(t, b, "db")
	if ids := next(t, ch); len(ids) != 1 || ids[0] != machine("db") {
		t.Errorf("watch: %v", ids)
	}
}

func testDelete(t *testing.T, b state.Backend) {
	o := create(t, b, "web")
	refuse(t, b, fault.Invalid, state.Write{ID: o.ID, Delete: true})
	refuse(t, b, fault.Invalid, state.Write{ID: o.ID, Revision: o.Revision, Delete: true, Life: state.Dead})
	refuse(t, b, fault.Conflict, state.Write{ID: o.ID, Revision: o.Revision + 1, Delete: true})
	gone := Write(t, b, state.Write{ID: o.ID, Revision: o.Revision, Delete: true})
	if gone.UID != o.UID || gone.Revision <= o.Revision {
		t.Errorf("deleted %+v", gone)
	}
	if _, err := b.Get(t.Context(), o.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("after delete: %v", err)
	}
	refuse(t, b, fault.NotFound, state.Write{ID: o.ID, Revision: state.AnyRevision, Delete: true})
	if objects, rev, err := b.List(t.Context()); err != nil || len(objects) != 0 || rev != gone.Revision {
		t.Errorf("list: %v at %d, %v; want none at %d", objects, rev, err, gone.Revision)
	}
}

func testRefused(t *testing.T, b state.Backend) {
	o := create(t, b, "web")
	for _, w := range []state.Write{
		{ID: state.ID{Kind: "", Name: "x"}},
		{ID: state.ID{Kind: "machine", Name: ""}},
		{ID: machine("a\nb")},
		{ID: machine(strings.Repeat("x", 300))},
		{ID: o.ID, Revision: -2},
		{ID: o.ID, Revision: o.Revision, Life: "undead"},
	} {
		refuse(t, b, fault.Invalid, w)
	}
	if _, err := b.Write(t.Context(), "sometimes", state.Write{ID: machine("x")}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a wrong mode: %v", err)
	}
}

func testAtomic(t *testing.T, b state.Backend) {
	o := create(t, b, "web")
	_, before, _ := b.List(t.Context())
	_, err := b.Write(t.Context(), state.Atomic,
		state.Write{ID: machine("a")},
		state.Write{ID: o.ID, Revision: o.Revision, Spec: raw(`{"a":9}`)},
		state.Write{ID: machine("gone"), Revision: state.AnyRevision},
		state.Write{ID: machine("b")})
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
	objects, after, err := b.List(t.Context())
	if err != nil || len(objects) != 1 || !same(objects[0], o) || after != before {
		t.Errorf("after a failed call: %+v at %d, %v", objects, after, err)
	}
	results, err := b.Write(t.Context(), state.Atomic,
		state.Write{ID: machine("a")}, state.Write{ID: o.ID, Revision: o.Revision, Delete: true})
	if err != nil || len(results) != 2 || results[0].Object.Name != "a" || results[1].Object.Name != "web" {
		t.Errorf("results %+v, %v", results, err)
	}
}

func testEach(t *testing.T, b state.Backend) {
	results, err := b.Write(t.Context(), state.Each,
		state.Write{ID: machine("c")},
		state.Write{ID: machine("gone"), Revision: state.AnyRevision},
		state.Write{ID: machine("a")},
		state.Write{ID: machine("a")},
		state.Write{ID: machine("b"), Life: "odd"},
		state.Write{ID: machine("c"), Revision: state.AnyRevision, Spec: raw(`{"n":2}`)})
	if err != nil || len(results) != 6 {
		t.Fatalf("results %+v, %v", results, err)
	}
	for i, want := range []struct {
		name string
		kind fault.Kind
	}{{"c", ""}, {"", fault.NotFound}, {"a", ""}, {"", fault.Conflict}, {"", fault.Invalid}, {"c", ""}} {
		if results[i].Object.Name != want.name || fault.KindOf(results[i].Err) != want.kind {
			t.Errorf("result %d: %+v, want %+v", i, results[i], want)
		}
	}
	if results[5].Object.Generation != 2 || results[5].Object.Revision <= results[2].Object.Revision {
		t.Errorf("the second write to c: %+v", results[5].Object)
	}
	if results, err := b.Write(t.Context(), state.Each); err != nil || len(results) != 0 {
		t.Errorf("no writes: %+v, %v", results, err)
	}
}

// A relaxed write is visible at once to readers and watchers. Sync() succeeds
// whether or not there are relaxed changes.
func testRelaxed(t *testing.T, b state.Backend) {
	before := create(t, b, "web")
	seen := watch(t, b, "machine")
	gather(t, seen, machine("web"))
	after := Write(t, b, state.Write{ID: machine("web"), Revision: before.Revision, Status: raw(`{"message":"50 %"}`), Relaxed: true})
	gather(t, seen, machine("web"))
	if read, err := b.Get(t.Context(), machine("web")); err != nil || !same(read, after) || after.Revision <= before.Revision {
		t.Errorf("read %+v, %v; written %+v", read, err, after)
	}
	for range 2 {
		if err := b.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func testList(t *testing.T, b state.Backend) {
	if objects, rev, err := b.List(t.Context()); err != nil || len(objects) != 0 || rev != 0 {
		t.Fatalf("an empty store: %v at %d, %v", objects, rev, err)
	}
	last := int64(0)
	for _, id := range []state.ID{{Kind: "volume", Name: "b"}, {Kind: "machine", Name: "z"}, {Kind: "host", Name: "host"}, {Kind: "machine", Name: "a"}} {
		last = Write(t, b, state.Write{ID: id}).Revision
	}
	for _, c := range []struct {
		kinds []string
		want  string
	}{
		{nil, "[host/host machine/a machine/z volume/b]"},
		{[]string{"machine"}, "[machine/a machine/z]"},
		{[]string{"volume", "host"}, "[host/host volume/b]"},
		{[]string{"network"}, "[]"},
	} {
		objects, rev, err := b.List(t.Context(), c.kinds...)
		names := []string{}
		for _, o := range objects {
			names = append(names, o.Kind+"/"+o.Name)
		}
		if got := fmt.Sprint(names); err != nil || got != c.want || rev != last {
			t.Errorf("list %v: %s at %d, %v; want %s at %d", c.kinds, got, rev, err, c.want, last)
		}
	}
}

// testRace lets several writers increment a counter in one object; no increment
// may be lost.
func testRace(t *testing.T, b state.Backend) {
	create(t, b, "web")
	const writers, each = 4, 5
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				o, err := b.Get(t.Context(), machine("web"))
				if err != nil {
					t.Error(err)
					return
				}
				var n int
				_, _ = fmt.Sscanf(string(o.Spec), `{"a":%d}`, &n)
				_, err = b.Write(t.Context(), state.Atomic,
					state.Write{ID: o.ID, Revision: o.Revision, Spec: raw(fmt.Sprintf(`{"a":%d}`, n+1))})
				switch {
				case err == nil:
					done++
				case !fault.Is(err, fault.Conflict):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got, want := string(getWeb(t, b).Spec), fmt.Sprintf(`{"a":%d}`, 1+writers*each); got != want {
		t.Errorf("counted to %s, want %s", got, want)
	}
}
