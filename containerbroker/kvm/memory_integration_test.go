//go:build integration

package kvm_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// Less memory than a running guest uses is refused, because the balloon would take it and
// the guest's kernel end processes and itself. So it is while the guest does not report its
// use. The other changes are made, and the memory shrinks once the guest can spare it.
func TestLessMemoryThanInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.broker("hostler")
	m := r.machine(d, "greedy")
	m.Memory = 1 << 30
	must(t, d.Create(t.Context(), m, nil))
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	_, err := d.WaitReady(t.Context(), m, nil)
	must(t, err)
	inside := func(script string) string {
		t.Helper()
		var out bytes.Buffer
		code, err := d.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: []string{"sh", "-c", script}, Stdout: &out, Stderr: &out})
		if must(t, err); code != 0 {
			t.Fatalf("%s: %d: %s", script, code, &out)
		}
		return strings.TrimSpace(out.String())
	}
	inside("mkdir -p /tmp/m && mount -t tmpfs -o size=90% none /tmp/m && head -c 600000000 /dev/zero >/tmp/m/file")
	m.Memory, m.CPUs = 512<<20, 2
	refused := func(why string) {
		t.Helper()
		if err := d.Update(t.Context(), m, d.Diff(m, get(t, d, m.Name))); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), why) {
			t.Errorf("the update: %v", err)
		}
		if left := d.Diff(m, get(t, d, m.Name)); len(left) != 1 || left[0].Field != containerbroker.FieldMemory {
			t.Errorf("left: %+v", left)
		}
	}
	refused("uses more memory than that")
	if n := inside("wc -c </tmp/m/file"); n != "600000000" {
		t.Errorf("its file has %q bytes", n)
	}
	r.server.Virsh("suspend", m.Name)
	refused("does not report")
	r.server.Virsh("resume", m.Name)
	if stats := r.server.Virsh("dumpxml", m.Name); strings.Contains(stats, "<stats period") {
		t.Errorf("the guest goes on to report:\n%s", stats)
	}
	inside("rm /tmp/m/file")
	pid := get(t, d, m.Name).PID
	settled(t, d, m, containerbroker.ImpactLive)
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(r.server.Virsh("dommemstat", m.Name), "actual 524288\n"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(r.server.Virsh("dommemstat", m.Name))
		}
	}
	if now := get(t, d, m.Name).PID; now != pid {
		t.Error("it was restarted")
	}
}
