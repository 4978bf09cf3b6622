//go:build integration

package kvm_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
)

// The listing explains that a guest suspended itself to RAM; a start wakes the
// guest.
func TestSuspendedGuests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.broker("hostler")
	m := r.machine(d, "sleeper")
	must(t, d.Create(t.Context(), m, nil))
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	exec := func(command ...string) {
		t.Helper()
		code, err := d.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: command})
		if must(t, err); code != 0 {
			t.Fatalf("%q ended with %d", command, code)
		}
	}
	sleep := func() {
		t.Helper()
		exec("sh", "-c", "{ sleep 1; echo mem >/sys/power/state; } </dev/null >/dev/null 2>&1 &")
		for deadline := time.Now().Add(time.Minute); get(t, d, m.Name).Status != containerbroker.StatusFrozen; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it does not fall asleep")
			}
		}
		if says := get(t, d, m.Name).Standstill; !strings.Contains(says, "suspended to RAM") {
			t.Errorf("of its standstill: %q", says)
		}
	}
	sleep()
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	exec("true")
}
