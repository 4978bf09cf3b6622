//go:build integration

package lxd_test

import (
	"syscall"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
)

// The event of a death arrives before LXD's cleanup is done, and the start that
// follows at once succeeds.
func TestDeathIsReportedAtOnce(t *testing.T) {
	server := lxdtest.Start(t)
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler"})
	events, err := d.Events(t.Context())
	must(t, err)
	m := machine("mortal", server.TinyFingerprint, "token")
	must(t, d.Create(t.Context(), m, nil))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	_, err = d.WaitReady(t.Context(), m, nil)
	must(t, err)
	before := get(t, server, m.Name).State.Pid
	if before <= 0 {
		t.Fatalf("its init is process %d", before)
	}
	must(t, syscall.Kill(int(before), syscall.SIGKILL))
	deadline := time.After(30 * time.Second)
	for told := 0; told < 2; { // when its init ended, and when LXD knew
		select {
		case e := <-events:
			if e.Instance == m.Name && e.Action == "shutdown" {
				told++
			}
		case <-deadline:
			t.Fatal("the death was not told")
		}
	}
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	_, err = d.WaitReady(t.Context(), m, nil)
	must(t, err)
	if after := get(t, server, m.Name).State.Pid; after == before {
		t.Errorf("its init is still process %d", after)
	}
}
