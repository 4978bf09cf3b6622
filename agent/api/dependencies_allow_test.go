package api

import (
	"strings"
	"testing"

	"hostler/internal/fault"
)

// A document for which the host has no room is refused in plan and apply, and
// nothing is written.
func TestTheHostRefuses(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	b.host.refuses = "lan"
	before := b.store.changes()
	req := request("net", "version: 1\nnetworks: {lan: {bridge: br-lan}}\n")
	for name, do := range map[string]func() error{
		"plan":  func() error { _, err := c.Plan(t.Context(), req); return err },
		"apply": func() error { _, err := c.Apply(t.Context(), req); return err },
	} {
		if err := do(); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "network/lan cannot be on this host") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.store.changes() != before {
		t.Error("what was refused was written")
	}
}
