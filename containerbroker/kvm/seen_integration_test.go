//go:build integration

package kvm_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/kvm"
)

// A guest without an agent is ready when its address is seen, both on a bridge
// of the host and on libvirt's own network. For the latter, libvirt itself
// returns the leases: the provisioner may see none of the host's files.
func TestAddressesAreSeenFromOutside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.broker("hostler")
	br := brokertest.Bridge(t)
	host(t, "/usr/sbin/ip", "address", "add", "10.177.3.1/24", "dev", br)
	for name, nics := range map[string][]containerbroker.NIC{
		"bridged": {{Name: "eth0", Bridge: br, MAC: "52:54:00:17:03:02", Addresses: []string{"10.177.3.2/24"}, Static: true}},
		"leased":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			m := r.machine(d, name)
			m.NICs = nics
			must(t, d.Create(t.Context(), m, nil))
			t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
			must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
			told, err := d.WaitReady(t.Context(), m, nil)
			must(t, err)
			if nics != nil {
				code, err := d.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: []string{"ping", "-c", "1", "10.177.3.1"}})
				if must(t, err); code != 0 {
					t.Fatalf("the guest does not reach the host: %d", code)
				}
			}
			// The agent cannot report how this ended.
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if _, err := d.Exec(ctx, m.Name, containerbroker.ExecRequest{Command: []string{"killall", "qemu-ga"}}); err == nil {
				t.Error("the agent is still there")
			}

			o := r.options("hostler")
			o.AgentTimeout, o.SeenTimeout = 20*time.Second, 200*time.Millisecond
			if nics == nil {
				o.Proc = t.TempDir() // as in a unit of its own
			}
			from := kvm.New(o) // a driver that has not heard the agent
			seen, err := from.WaitReady(t.Context(), m, nil)
			must(t, err)
			if len(told.Addresses) == 0 || !slices.Equal(seen.Addresses, told.Addresses) {
				t.Errorf("the agent told %v, seen is %v", told.Addresses, seen.Addresses)
			}
			if listed := get(t, from, name).Addresses; !slices.Equal(listed, told.Addresses) {
				t.Errorf("listed with %v", listed)
			}
		})
	}
}
