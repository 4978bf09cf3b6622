//go:build integration

package kvm_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/kvm"
	"hostler/internal/fault"
)

// The root disk of a running guest never shrinks, even if it was grown behind the
// agent's back. The start of the guest is known.
func TestARootDiskDoesNotShrink(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.broker("hostler")
	m := r.machine(d, "shrink")
	must(t, d.Create(t.Context(), m, nil))
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	before := time.Now().Add(-time.Second)
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	if started := get(t, d, m.Name).Started; started.Before(before) || started.After(time.Now()) {
		t.Errorf("started at %v", started)
	}
	r.server.Virsh("blockresize", m.Name, "vda", "30G")
	m.RootDisk = 20 << 30
	must(t, d.Update(t.Context(), m, []containerbroker.Change{{Field: containerbroker.FieldRootDisk}}))
	if out := r.server.Virsh("domblkinfo", m.Name, "vda"); !strings.Contains(out, "32212254720") {
		t.Errorf("its root disk is %s", out)
	}
}

// A saved state names disks by devices that may be other volumes' by now.
func TestASavedGuestWithDisksIsNotStarted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.broker("hostler")
	m := r.machine(d, "saved")
	m.Disks = []containerbroker.Disk{{Name: "vol-data", Source: brokertest.Device(t), Device: "/dev/data"}}
	must(t, d.Create(t.Context(), m, nil))
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	r.server.Virsh("managedsave", m.Name)
	if err := d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "managedsave-remove "+m.Name) {
		t.Errorf("started: %v", err)
	}
	r.server.Virsh("managedsave-remove", m.Name)
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
}

// W10: a grown volume is larger in the running guest or, if the guest has it
// read-only, after the guest's next start.
func TestDisksGrowInTheGuest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.broker("hostler")
	m := r.machine(d, "grow")
	var files []string
	for n, name := range []string{"a", "b"} {
		file := filepath.Join(t.TempDir(), name)
		must(t, os.WriteFile(file, nil, 0o600))
		must(t, os.Truncate(file, 1<<20))
		loop := brokertest.Loop(t, file)
		files = append(files, file, loop)
		m.Disks = append(m.Disks, containerbroker.Disk{Name: "vol-" + name, Source: loop, Device: "/dev/hostler-" + name, Size: 1 << 20, ReadOnly: n == 1})
	}
	written := m.Disks
	m.Disks = nil
	must(t, d.Create(t.Context(), m, nil))
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	_, err := d.WaitReady(t.Context(), m, nil)
	must(t, err)
	m.Disks = written
	settled(t, d, m, containerbroker.ImpactLive)
	for _, name := range []string{"a", "b"} {
		if has := sectors(t, d, m, name); has != "2048" {
			t.Fatalf("%s has %q sectors of 512 bytes", name, has)
		}
	}
	grow := func(n int) {
		must(t, os.Truncate(files[2*n], 256<<20))
		host(t, "/usr/sbin/losetup", "--set-capacity", files[2*n+1])
		m.Disks[n].Size = 256 << 20
	}
	is := func(name string) {
		if has := sectors(t, d, m, name); has != "524288" {
			t.Errorf("%s has %q sectors of 512 bytes", name, has)
		}
	}
	pid := get(t, d, m.Name).PID
	grow(0)
	settled(t, d, m, containerbroker.ImpactLive)
	is("a")
	grow(1)
	settled(t, d, m, containerbroker.ImpactRestart)
	if now := get(t, d, m.Name).PID; now != pid {
		t.Error("it was restarted")
	}
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, time.Minute))
	_, err = d.WaitReady(t.Context(), m, nil)
	must(t, err)
	is("b")
}

// settled updates a machine to its declaration and fails if the impact differs.
func settled(t *testing.T, d *kvm.Driver, m containerbroker.Machine, impact containerbroker.Impact) {
	t.Helper()
	changes := d.Diff(m, get(t, d, m.Name))
	if containerbroker.Worst(changes) != impact {
		t.Fatalf("changes: %+v", changes)
	}
	for range 2 { // doing it again is success
		must(t, d.Update(t.Context(), m, changes))
	}
	if left := d.Diff(m, get(t, d, m.Name)); len(left) != 0 {
		t.Fatalf("left: %+v", left)
	}
}

// sectors returns the size of the disk with a serial, as the guest sees it.
func sectors(t *testing.T, d *kvm.Driver, m containerbroker.Machine, serial string) string {
	t.Helper()
	var out bytes.Buffer
	find := `for d in /sys/block/vd*; do [ "$(cat $d/serial)" != "$0" ] || cat $d/size; done`
	code, err := d.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: []string{"sh", "-c", find, serial}, Stdout: &out, Stderr: &out})
	if must(t, err); code != 0 {
		t.Fatalf("the disk cannot be read: %d", code)
	}
	return strings.TrimSpace(out.String())
}
