//go:build integration

package kvm_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"hostler/containerbroker"
)

// To define and start a guest takes at most eight calls of libvirt, besides
// those that the guests of a burst share. An idle driver keeps no connection of
// the burst.
func TestAGuestCostsFewCalls(t *testing.T) {
	r := newRig(t)
	d := r.broker("hostler")
	first := r.made(d, "first")
	must(t, d.Delete(t.Context(), first.Name, first.Stamp))
	const guests, shared = 4, 8
	var all []containerbroker.Machine
	for i := range guests {
		m := r.machine(d, fmt.Sprintf("guest%d", i))
		m.Autostart = true
		all = append(all, m)
	}
	r.proxy.Calls()
	for _, m := range all {
		must(t, d.Create(t.Context(), m, nil))
		must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	}
	calls, each := r.proxy.Calls()
	t.Logf("%d calls for %d guests, by their numbers in libvirt's protocol: %v", calls, guests, each)
	if calls > 8*guests+shared {
		t.Errorf("more than %d calls", 8*guests+shared)
	}
	for _, m := range all {
		if i := get(t, d, m.Name); i.Status != containerbroker.StatusRunning {
			t.Errorf("%s is %s", m.Name, i.Status)
		}
		must(t, d.Delete(t.Context(), m.Name, m.Stamp))
	}
	const session = 1 // the listing's
	deadline := time.Now().Add(30 * time.Second)
	for r.proxy.Open() > session {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections stay open", r.proxy.Open())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// The wait for a guest's agent follows libvirt's events. What it repeats, at most once
// a second, is the question whether the script in the guest has ended.
func TestAWaitForAGuestCostsFewCalls(t *testing.T) {
	r := newRig(t)
	d := r.broker("hostler")
	_, err := d.List(t.Context(), false)
	must(t, err) // opens the session
	m := r.machine(d, "guest")
	must(t, d.Create(t.Context(), m, nil))
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	r.proxy.Calls()
	began := time.Now()
	_, err = d.WaitReady(t.Context(), m, nil)
	must(t, err)
	took := time.Since(began)
	calls, each := r.proxy.Calls()
	t.Logf("%d calls in %v, by their numbers in libvirt's protocol: %v", calls, took.Round(time.Millisecond), each)
	if most := 14 + int(took.Seconds()); calls > most {
		t.Errorf("more than %d calls", most)
	}
}
