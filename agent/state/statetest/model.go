package statetest

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"hostler/agent/state"
	"hostler/internal/fault"
)

// testModel makes random calls on the store and on a map and compares them.
func testModel(t *testing.T, open func(*testing.T) state.Backend) {
	b := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt, t, b)
		rt.Repeat(map[string]func(*rapid.T){
			"write": m.write,
			"":      m.agree,
		})
	})
}

// model is the expected contents of the store. Every run uses a separate kind
// of objects in the same store.
type model struct {
	t        *testing.T
	b        state.Backend
	kind     string
	objects  map[string]state.Object
	revision int64
}

func newModel(rt *rapid.T, t *testing.T, b state.Backend) *model {
	_, revision, err := b.List(t.Context())
	if err != nil {
		rt.Fatal(err)
	}
	for i := 0; ; i++ {
		kind := fmt.Sprintf("kind%d", i)
		events, err := b.Events(t.Context(), state.EventQuery{Object: &state.ID{Kind: kind}})
		if err != nil {
			rt.Fatal(err)
		}
		if len(events) == 0 {
			if err := b.Record(t.Context(), state.Event{Object: state.ID{Kind: kind, Name: "taken"}}); err != nil {
				rt.Fatal(err)
			}
			return &model{t: t, b: b, kind: kind, objects: map[string]state.Object{}, revision: revision}
		}
	}
}

func (m *model) write(rt *rapid.T) {
	mode := rapid.SampledFrom([]state.Mode{state.Atomic, state.Each}).Draw(rt, "mode")
	var writes []state.Write
	for range rapid.IntRange(1, 3).Draw(rt, "count") {
		writes = append(writes, m.draw(rt))
	}
	results, err := m.b.Write(m.t.Context(), mode, writes...)
	want := maps.Clone(m.objects)
	moved, failed := int64(0), fault.Kind("")
	for i, w := range writes {
		kind, changed := expect(want, w)
		moved += changed
		if mode == state.Atomic && kind != "" {
			failed = kind
			break
		}
		if err == nil && fault.KindOf(results[i].Err) != kind {
			rt.Fatalf("%s %+v: result %v, want %q", mode, w, results[i].Err, kind)
		}
	}
	if fault.KindOf(err) != failed {
		rt.Fatalf("%s %+v: %v, want %q", mode, writes, err, failed)
	}
	if err == nil {
		m.objects = want
		m.revision += moved
	}
}

func (m *model) draw(rt *rapid.T) state.Write {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name")
	w := state.Write{ID: state.ID{Kind: m.kind, Name: name}}
	if rapid.Bool().Draw(rt, "exists") {
		w.Revision = rapid.SampledFrom([]int64{state.AnyRevision, m.objects[name].Revision, 999999}).Draw(rt, "revision")
	}
	if w.Revision != 0 && rapid.IntRange(0, 3).Draw(rt, "delete") == 0 {
		w.Delete = true
		return w
	}
	value := func(label string) []byte {
		return rapid.SampledFrom([][]byte{nil, raw(`{"v":1}`), raw(`{"v":2}`)}).Draw(rt, label)
	}
	w.Spec, w.Status = value("spec"), value("status")
	w.Life = rapid.SampledFrom([]state.Life{"", state.Alive, state.Dying}).Draw(rt, "life")
	return w
}

// expect makes a write on the map. It returns the fault kind of the refusal, or
// "", and the number of revisions that the write makes. agree() fills in the
// revisions of the objects.
func expect(objects map[string]state.Object, w state.Write) (fault.Kind, int64) {
	o, ok := objects[w.Name]
	switch {
	case w.Revision == 0 && ok:
		return fault.Conflict, 0
	case w.Revision == 0:
		o = state.Object{ID: w.ID, Generation: 1, Life: state.Alive, Spec: raw("{}"), Revision: unknownRevision}
	case !ok && w.Revision == state.AnyRevision:
		return fault.NotFound, 0
	case !ok, w.Revision != state.AnyRevision && w.Revision != o.Revision:
		return fault.Conflict, 0
	}
	if w.Delete {
		delete(objects, w.Name)
		return "", 1
	}
	before := o
	if w.Spec != nil {
		o.Spec = w.Spec
	}
	if w.Status != nil {
		o.Status = w.Status
	}
	if w.Life != "" {
		o.Life = w.Life
	}
	aim := string(before.Spec) != string(o.Spec) || before.Life != o.Life
	if ok && !aim && string(before.Status) == string(o.Status) {
		return "", 0
	}
	if ok && aim {
		o.Generation++
	}
	o.Revision = unknownRevision
	objects[w.Name] = o
	return "", 1
}

// unknownRevision matches no revision that a write can have.
const unknownRevision = -7

func (m *model) agree(rt *rapid.T) {
	objects, revision, err := m.b.List(m.t.Context(), m.kind)
	if err != nil {
		rt.Fatal(err)
	}
	if revision != m.revision {
		rt.Fatalf("at revision %d, want %d", revision, m.revision)
	}
	names := slices.Sorted(maps.Keys(m.objects))
	if len(objects) != len(names) {
		rt.Fatalf("objects %+v, want %+v", objects, m.objects)
	}
	for i, o := range objects {
		want := m.objects[names[i]]
		if want.Revision == unknownRevision {
			want.Revision = o.Revision
		}
		if o.Name != names[i] || o.Revision != want.Revision || o.Generation != want.Generation || o.Life != want.Life ||
			string(o.Spec) != string(want.Spec) || string(o.Status) != string(want.Status) || o.Revision > revision {
			rt.Fatalf("object %+v, want %+v", o, want)
		}
		m.objects[o.Name] = o
	}
}
