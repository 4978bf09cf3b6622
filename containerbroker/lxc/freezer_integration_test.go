//go:build integration

package lxc_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// A guest that was not frozen by LXC's tools, so that its monitor takes it for
// running, is listed as frozen, refuses commands, is thawed by a start, and is
// stopped and deleted as any other.
func TestFrozenBehindTheMonitorsBack(t *testing.T) {
	w := newWorld(t)
	for _, timeout := range []time.Duration{0, 2 * time.Second} {
		m := w.machine(t, "stuck")
		await := awaiting(t, w.d, m.Name)
		pid := w.start(t, m)
		await("started")
		freeze := func() {
			t.Helper()
			group := "/lxc.payload." + m.Stamp.Namespace + "." + m.Name
			err := os.WriteFile("/sys/fs/cgroup/freezer"+group+"/freezer.state", []byte("FROZEN"), 0o600)
			if errors.Is(err, os.ErrNotExist) {
				err = os.WriteFile("/sys/fs/cgroup"+group+"/cgroup.freeze", []byte("1"), 0o600)
			}
			must(t, err)
			within(t, "it is not listed as frozen", func() bool { return find(t, w.d, m.Name).Status == containerbroker.StatusFrozen })
		}
		freeze()
		await("frozen")
		if _, err := w.d.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: []string{"true"}}); !fault.Is(err, fault.NotReady) {
			t.Errorf("a command: %v", err)
		}
		must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
		await("thawed")
		if now := find(t, w.d, m.Name); now.Status != containerbroker.StatusRunning || now.PID != pid {
			t.Errorf("started, it was the process %d and is %d, %s", pid, now.PID, now.Status)
		}
		w.says(t, m.Name, "echo on", "on")
		freeze()
		must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStop, timeout))
		must(t, w.d.Delete(t.Context(), m.Name, m.Stamp))
	}
}

// Freezing and thawing by LXC's own tools is noticed, and the listing shows it by
// then.
func TestEventsOfTheFreezer(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "frozen")
	await := awaiting(t, w.d, m.Name)
	pid := w.start(t, m)
	await("started")
	for range 3 {
		w.freeze(t, m.Name)
		await("frozen")
		if i := find(t, w.d, m.Name); i.Status != containerbroker.StatusFrozen || i.Standstill == "" {
			t.Errorf("frozen it is %s, %q", i.Status, i.Standstill)
		}
		host(t, "lxc-unfreeze", "-P", w.path, "-n", m.Name)
		await("thawed")
		if i := find(t, w.d, m.Name); i.Status != containerbroker.StatusRunning || i.PID != pid {
			t.Errorf("thawed it is %s with the process %d", i.Status, i.PID)
		}
	}
	w.inside(t, m.Name, "reboot -f")
	await("ended")
	await("started")
	w.freeze(t, m.Name)
	await("frozen")
	// A frozen guest is stopped and deleted as any other.
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStop, 5*time.Second))
	await("ended")
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	await("started")
	w.freeze(t, m.Name)
	await("frozen")
	must(t, w.d.Delete(t.Context(), m.Name, m.Stamp))
	await("deleted")
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
