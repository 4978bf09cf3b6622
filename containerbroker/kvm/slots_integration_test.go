//go:build integration

package kvm_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
)

// K4: a running guest gets as many devices as the plan promises live, and the
// others at its next start.
func TestDevicesBeyondTheSlots(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.broker("hostler")
	m := r.made(d, "slots")
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	_, err := d.WaitReady(t.Context(), m, nil)
	must(t, err)
	for n := range 10 {
		m.Disks = append(m.Disks, containerbroker.Disk{Name: fmt.Sprint("vol-", n), Source: brokertest.Device(t), Device: fmt.Sprint("/dev/hostler-", n)})
	}
	var live, restart []containerbroker.Change
	for _, c := range d.Diff(m, get(t, d, m.Name)) {
		if c.Impact == containerbroker.ImpactLive {
			live = append(live, c)
		} else {
			restart = append(restart, c)
		}
	}
	if len(live) == 0 || len(restart) == 0 || len(live)+len(restart) != len(m.Disks) {
		t.Fatalf("live: %+v, later: %+v", live, restart)
	}
	must(t, d.Update(t.Context(), m, live))
	left := d.Diff(m, get(t, d, m.Name))
	if len(left) != len(restart) || containerbroker.Worst(left) != containerbroker.ImpactRestart {
		t.Fatalf("left: %+v", left)
	}
	for range 2 { // doing it again is success
		must(t, d.Update(t.Context(), m, left))
	}
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, time.Minute))
	if left := d.Diff(m, get(t, d, m.Name)); len(left) != 0 {
		t.Fatalf("it started again and differs: %+v", left)
	}
	_, err = d.WaitReady(t.Context(), m, nil)
	must(t, err)
	for n := range m.Disks {
		if has := sectors(t, d, m, fmt.Sprint(n)); has != "2048" {
			t.Errorf("the guest finds %q sectors on disk %d", has, n)
		}
	}
}
