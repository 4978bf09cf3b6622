package agent

import (
	"log/slog"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/hostlock"
	"hostler/internal/hosttest"
)

// The host's record holds the facts that a provisioner's unit cannot see, and a
// changed configuration keeps them.
func TestFactsOfTheHostAreTold(t *testing.T) {
	store, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	h := &host{store: store, logger: slog.New(slog.DiscardHandler)}
	for range 2 {
		if err := h.writeConfig(t.Context(), spec.DefaultConfig()); err != nil {
			t.Fatal(err)
		}
		record, err := h.hostRecord(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if boot := record.Facts.Boot; boot == "" || boot != hostlock.BootID() {
			t.Errorf("told boot %q", boot)
		}
	}
}
