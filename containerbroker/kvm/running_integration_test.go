//go:build integration

package kvm_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
)

// W12 I15: a change that another tool makes only in the running guest is seen
// and repaired; an unchanged guest costs no call of its own.
func TestDriftOfTheRunningGuest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.broker("hostler")
	m := r.machine(d, "drift")
	m.CPUs = 2
	const mac = "52:54:00:17:04:02"
	m.NICs = []containerbroker.NIC{{Name: "eth0", Bridge: brokertest.Bridge(t), MAC: mac, Addresses: []string{"10.177.4.2/24"}, Static: true}}
	m.Disks = []containerbroker.Disk{{Name: "vol-data", Source: brokertest.Device(t), Device: "/dev/hostler-data"}}
	must(t, d.Create(t.Context(), m, nil))
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	_, err := d.WaitReady(t.Context(), m, nil)
	must(t, err)
	if changes := d.Diff(m, get(t, d, m.Name)); len(changes) != 0 {
		t.Fatalf("it runs, and differs: %+v", changes)
	}
	// differs waits until the guest has released the devices.
	differs := func(fields ...string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			changes := d.Diff(m, get(t, d, m.Name))
			if len(changes) == len(fields) && containerbroker.Worst(changes) == containerbroker.ImpactLive {
				for n, field := range fields {
					if changes[n].Field != field {
						t.Fatalf("changes: %+v", changes)
					}
				}
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("changes: %+v", changes)
			}
		}
	}
	m.CPUs = 3
	r.server.Virsh("setvcpus", m.Name, "3", "--config") // libvirt sends no event for this
	r.server.Virsh("detach-disk", m.Name, "vdb", "--live")
	differs("cpus", "disk vol-data")
	r.server.Virsh("detach-interface", m.Name, "bridge", "--mac", mac, "--live")
	differs("cpus", "disk vol-data", "nic eth0")
	settled(t, d, m, containerbroker.ImpactLive)
	if has := strings.TrimSpace(r.server.Virsh("vcpucount", m.Name, "--live", "--current")); has != "3" {
		t.Errorf("it runs with %q processors", has)
	}
	const readXML = 14
	r.proxy.Calls()
	get(t, d, m.Name)
	if n := r.proxy.Count(readXML); n != 0 {
		t.Errorf("a look at a guest that stays as it is read %d definitions", n)
	}
}
