package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/hostlock"
	"hostler/internal/paths"
)

// What a provisioner's unit cannot see of the kernel stands in the host's
// record, from where it and the agent's planner take it.
func TestFactsOfTheHostAreTold(t *testing.T) {
	store, _, err := state.Open(t.Context(), state.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	h := &host{paths: paths.Paths{Root: t.TempDir()}, store: store, logger: slog.New(slog.DiscardHandler)}
	if err := h.writeConfig(t.Context(), spec.DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	told := func() (facts spec.HostFacts, machine containerbroker.Machine) {
		t.Helper()
		record, err := h.hostRecord(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return record.Facts, provisioner.ConfigOf(record, spec.LXD).Resolve(provisioner.Desired{})
	}
	if facts, machine := told(); facts.Boot != hostlock.BootID() || facts.Boot == "" || facts.FiltersIPv6 || machine.FilterIPv6 {
		t.Errorf("at first: %+v", facts)
	}
	h.sup = newSupervisor(h.logger, time.Now)
	h.sup.start(t.Context(), "facts", h.followFacts(time.Millisecond))
	defer h.sup.stop("facts")
	bridge := filepath.Join(h.paths.ProcSys(), "net/bridge")
	if err := os.MkdirAll(bridge, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, able := range []bool{true, false, true} {
		value := map[bool]string{true: "1\n", false: "0\n"}[able]
		if err := os.WriteFile(filepath.Join(bridge, "bridge-nf-call-ip6tables"), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(10 * time.Second)
		for facts, machine := told(); facts.FiltersIPv6 != able || machine.FilterIPv6 != able; facts, machine = told() {
			if time.Now().After(deadline) {
				t.Fatalf("never told %v: %+v", able, facts)
			}
			time.Sleep(time.Millisecond)
		}
	}
	// A configuration that is read anew keeps them.
	if err := h.writeConfig(t.Context(), spec.DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	if facts, _ := told(); !facts.FiltersIPv6 {
		t.Errorf("after a change of the configuration: %+v", facts)
	}
}
