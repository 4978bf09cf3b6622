//go:build integration

package kvm_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// A released instance still runs from its image, so the image cannot be
// deleted. Adopted again, the instance belongs to hostler with all its files.
func releasedKeepsItsImage(t *testing.T, r *rig) {
	t.Helper()
	d := r.broker("hostler")
	m := r.made(d, "let-go")
	t.Cleanup(func() { _ = d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp) })
	before := get(t, d, m.Name)
	must(t, d.Unstamp(t.Context(), m.Name, m.Stamp))
	imageStays(t, r, m, m.Name)

	must(t, d.Stamp(t.Context(), m.Name, nil, m.Stamp))
	now := get(t, d, m.Name)
	if now.ImageID != m.ImageID || now.RootDisk != before.RootDisk {
		t.Errorf("taken over again it is %+v, was %+v", now, before)
	}
	// An adopted machine declares no root disk and keeps its own.
	big := m
	big.RootDisk = 20 << 30
	must(t, d.Update(t.Context(), big, d.Diff(big, now)))
	adopted := m
	adopted.KeepGuest = true
	if changes := d.Diff(adopted, get(t, d, m.Name)); slices.ContainsFunc(changes, func(c containerbroker.Change) bool { return c.Field == containerbroker.FieldRootDisk }) {
		t.Errorf("changes %v", changes)
	}

	// An operator undefined this domain but kept its disk.
	must(t, d.Unstamp(t.Context(), m.Name, m.Stamp))
	definition := r.server.Virsh("dumpxml", m.Name, "--inactive")
	r.server.Virsh("undefine", m.Name)
	imageStays(t, r, m, "root.qcow2")
	r.server.Define("define", definition)

	must(t, d.Stamp(t.Context(), m.Name, nil, m.Stamp))
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
	for _, file := range r.server.Files() {
		if strings.Contains(file, m.Name) {
			t.Errorf("%s is left", file)
		}
	}
}

// A disk in another pool also keeps the image that is its backing file.
func imageOfAnotherPoolStays(t *testing.T, r *rig) {
	t.Helper()
	m, dir := r.machine(r.broker("hostler"), "theirs"), t.TempDir()
	r.server.Virsh("pool-define-as", "other", "dir", "--target", dir)
	r.server.Virsh("pool-start", "other")
	t.Cleanup(func() {
		r.server.Virsh("pool-destroy", "other")
		r.server.Virsh("pool-undefine", "other")
	})
	// libvirt has not seen the file yet.
	image := filepath.Join(r.server.PoolDir, "hostler-image-hostler-"+m.ImageID+".qcow2")
	host(t, "/usr/bin/qemu-img", "create", "-f", "qcow2", "-b", image, "-F", "qcow2", filepath.Join(dir, "theirs.qcow2"))
	imageStays(t, r, m, "theirs.qcow2")
}

// imageStays checks that the machine's image cannot be deleted, and that the
// message names its users.
func imageStays(t *testing.T, r *rig, m containerbroker.Machine, user string) {
	t.Helper()
	err := r.broker("hostler").DeleteImage(t.Context(), m.ImageID)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), user) {
		t.Errorf("deleting the image gives %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.server.PoolDir, "hostler-image-hostler-"+m.ImageID+".qcow2")); err != nil {
		t.Fatal(err)
	}
}
