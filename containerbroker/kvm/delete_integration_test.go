//go:build integration

package kvm_test

import (
	"regexp"
	"strings"
	"testing"

	"hostler/internal/fault"
)

// A clone made by hand has a copy of the stamp and a UUID of its own. It counts
// as foreign, even if the original was renamed; the original's files are
// deleted with the original.
func cloneIsForeign(t *testing.T, r *rig) {
	t.Helper()
	d := r.broker("hostler")
	m := r.made(d, "original")
	clone := strings.Replace(r.server.Virsh("dumpxml", m.Name, "--inactive"), "<name>original</name>", "<name>cloned</name>", 1)
	clone = regexp.MustCompile("<uuid>[^<]*</uuid>").ReplaceAllString(clone, "<uuid>0b7cf4e2-5a0e-4a3e-9a77-000000000001</uuid>")
	r.server.Define("define", clone)
	t.Cleanup(func() { r.server.Virsh("undefine", "cloned") })
	r.server.Virsh("domrename", m.Name, "renamed")
	if i := get(t, d, "cloned"); i.Stamp != nil {
		t.Errorf("the clone bears %+v", i.Stamp)
	}
	if i := get(t, d, "renamed"); i.Stamp == nil || *i.Stamp != m.Stamp {
		t.Errorf("the original bears %+v", i.Stamp)
	}
	if err := d.Delete(t.Context(), "cloned", m.Stamp); !fault.Is(err, fault.Conflict) {
		t.Errorf("deleting the clone gives %v", err)
	}
	if err := d.Unstamp(t.Context(), "cloned", m.Stamp); err != nil {
		t.Error(err)
	}
	must(t, d.Delete(t.Context(), "renamed", m.Stamp))
	for _, file := range r.server.Files() {
		if strings.Contains(file, m.Name) {
			t.Errorf("%s is left", file)
		}
	}
}

// An instance whose storage pool libvirt no longer knows is not deleted, since
// its files could not be found again. Once the pool is back, the deletion
// removes everything.
func forgottenPoolKeepsInstance(t *testing.T, r *rig) {
	t.Helper()
	d := r.broker("hostler")
	m := r.made(d, "pooled")
	r.server.Virsh("pool-destroy", "default")
	r.server.Virsh("pool-undefine", "default")
	err := d.Delete(t.Context(), m.Name, m.Stamp)
	r.server.Virsh("pool-define-as", "default", "dir", "--target", r.server.PoolDir)
	r.server.Virsh("pool-start", "default")
	if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "pool-define-as default dir --target "+r.server.PoolDir) {
		t.Errorf("error %v", err)
	}
	get(t, d, m.Name)
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
	for _, file := range r.server.Files() {
		if strings.Contains(file, m.Name) {
			t.Errorf("%s is left", file)
		}
	}
}
