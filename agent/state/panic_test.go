package state_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/state"
)

// I8: a panic during a write rolls that write back, and the store continues: a
// supervisor may restart its caller.
func TestPanicUndoesTheWrite(t *testing.T) {
	var bad atomic.Bool
	l, _ := open(t, state.Options{Dir: t.TempDir(), Clock: func() time.Time {
		if bad.Load() {
			panic("no time")
		}
		return time.Now()
	}})
	fill(t, l, "before", 1)
	want := contents(t, l)
	bad.Store(true)
	err := errors.New("no panic")
	func() {
		defer func() {
			if recover() != nil {
				err = nil
			}
		}()
		_, _ = l.Write(t.Context(), state.Atomic, state.Write{ID: state.ID{Kind: "machine", Name: "never"}, Life: state.Alive, Spec: []byte("{}")})
	}()
	bad.Store(false)
	if err != nil {
		t.Fatal(err)
	}
	if got := contents(t, l); got != want {
		t.Errorf("the write is there:\n%s", got)
	}
	fill(t, l, "after", 1)
}
