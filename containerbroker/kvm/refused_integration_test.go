//go:build integration

package kvm_test

import (
	"testing"

	"hostler/containerbroker"
)

// A create whose root disk libvirt cannot make leaves no domain, so that the
// machine's removal waits for nothing.
func TestRefusedRootDiskLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.broker("hostler")
	m := r.machine(d, "refused")
	m.RootDisk = 1 << 62 // qcow2 has no such size
	if err := d.Create(t.Context(), m, nil); err == nil || !containerbroker.IsNotMade(err) {
		t.Errorf("created: %v", err)
	}
	if names := r.server.Names(); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
}
