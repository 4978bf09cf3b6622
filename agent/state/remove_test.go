package state_test

import (
	"testing"

	"hostler/agent/state"
	"hostler/internal/fault"
)

// A removed store is as on a new host, but an open store is not removed.
func TestRemovedStoreIsFresh(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		store, report, err := state.Open(t.Context(), state.Options{Dir: dir})
		if err != nil || !report.Fresh {
			t.Fatalf("%+v, %v", report, err)
		}
		if _, err := store.Write(t.Context(), state.Atomic, state.Write{ID: state.ID{Kind: "machine", Name: "web"}, Spec: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		if err := state.Remove(dir); !fault.Is(err, fault.Conflict) {
			t.Fatalf("while it is open: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if err := state.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
}
