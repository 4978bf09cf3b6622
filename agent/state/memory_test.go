package state_test

import (
	"reflect"
	"testing"

	"hostler/agent/state"
)

// A store answers from memory just what it answers from the disk when it is
// opened again. In particular, times have no reading of a monotonic clock, which
// would make them differ after the clock was set.
func TestMemoryEqualsTheDisk(t *testing.T) {
	dir := t.TempDir()
	read := func(l *state.Local) (objects []state.Object, revision int64, intents []state.Intent) {
		t.Helper()
		objects, revision, err := l.List(t.Context())
		if err == nil {
			intents, err = l.Intents(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return objects, revision, intents
	}
	l, _ := open(t, state.Options{Dir: dir})
	fill(t, l, "b", 12) // deletes some
	fill(t, l, "a", 7)
	if err := l.End(t.Context(), "b3", "a0", "none"); err != nil {
		t.Fatal(err)
	}
	objects, revision, intents := read(l)
	if len(objects) != 16 || len(intents) != 17 {
		t.Errorf("%d objects and %d intents", len(objects), len(intents))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := open(t, state.Options{Dir: dir})
	onDisk, then, open := read(again)
	if revision != then {
		t.Errorf("the revision was %d and is %d", revision, then)
	}
	if !reflect.DeepEqual(objects, onDisk) {
		t.Errorf("the objects were\n%+v\nand are\n%+v", objects, onDisk)
	}
	if !reflect.DeepEqual(intents, open) {
		t.Errorf("the intents were\n%+v\nand are\n%+v", intents, open)
	}
}
