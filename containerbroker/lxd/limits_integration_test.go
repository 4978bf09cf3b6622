//go:build integration

package lxd_test

import (
	"strings"
	"testing"

	"hostler/containerbroker"
	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/fault"
)

// A limit below the memory in use is refused, with one message on either layout of
// cgroups, and the guest loses nothing. The stopped instance takes it.
func TestLimitBelowTheMemoryInUse(t *testing.T) {
	t.Parallel()
	server := lxdtest.Start(t)
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler"})
	m := machine("greedy", server.TinyFingerprint, "token")
	m.Memory = 256 << 20
	must(t, d.Create(t.Context(), m, nil))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	works(t, d, m.Name, "mount -t tmpfs none /tmp && head -c 40000000 /dev/zero >/tmp/file")
	pid := get(t, server, m.Name).State.Pid
	m.Memory = 16 << 20
	if err := d.Update(t.Context(), m, differences(t, d, m)); !fault.Is(err, fault.Transient) || !strings.HasSuffix(err.Error(), "restart the machine") {
		t.Errorf("the limit: %v", err)
	}
	works(t, d, m.Name, "test -s /tmp/file")
	if now := get(t, server, m.Name).State.Pid; now != pid {
		t.Errorf("the guest of process %d has process %d now", pid, now)
	}
	if left := differences(t, d, m); len(left) != 1 || left[0].Field != containerbroker.FieldMemory {
		t.Errorf("after it: %+v", left)
	}
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStop, 0))
	must(t, d.Update(t.Context(), m, differences(t, d, m)))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	if left := differences(t, d, m); len(left) != 0 {
		t.Errorf("started again: %+v", left)
	}
}
