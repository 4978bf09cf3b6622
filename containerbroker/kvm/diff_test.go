package kvm

import (
	"strings"
	"testing"

	"hostler/containerbroker"
)

// A root disk that hostler did not make is not resized, and the plan says so if
// a declaration asks for another size.
func TestRootDisksOfOthersAreNotResized(t *testing.T) {
	found := read(t, "<domain type='kvm'><name>web</name><vcpu>1</vcpu><memory unit='GiB'>1</memory></domain>")
	m := machine()
	m.CPUs, m.Memory, m.KeepGuest = 1, 1<<30, true
	of := func() (changes []containerbroker.Change) {
		for _, c := range New(Options{}).Diff(m, found) {
			if c.Field == containerbroker.FieldRootDisk {
				changes = append(changes, c)
			}
		}
		return changes
	}
	if changes := of(); len(changes) != 0 {
		t.Errorf("none is declared: %+v", changes)
	}
	m.RootDisk = 20 << 30
	changes := of()
	if len(changes) != 1 || changes[0].Impact != containerbroker.ImpactRecreate || !strings.Contains(changes[0].Reason, "remove root-disk") {
		t.Errorf("another is declared: %+v", changes)
	}
}
