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
	// A file of it may come into force when the host changes, unlike one that
	// conflicts with another.
	a := b.files(t, map[string]string{"net.yaml": "version: 1\nnetworks: {lan: {bridge: br-lan}}\n", "other.yaml": "version: 1\nnetworks: {wan: {bridge: br-wan}}\n", "wan.yaml": "version: 1\nnetworks: {wan: {bridge: br-far}}\n"})
	if len(a.Refused) != 2 || !fault.Is(a.Refused[folder+"net.yaml"], fault.NotReady) || !fault.Is(a.Refused[folder+"wan.yaml"], fault.Conflict) {
		t.Errorf("the files are refused for %v", a.Refused)
	}
}
