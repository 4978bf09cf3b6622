//go:build integration

package bench

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/hostnet/ipam"
)

const many = 10_000

// BenchmarkPlan plans for many machines: in turn one that runs, one to be
// deleted, one that failed and one to be created.
func BenchmarkPlan(b *testing.B) {
	const namespace = "bench"
	now := time.Now()
	var desired []provisioner.Desired
	observed := provisioner.Observed{Complete: true}
	for i, name := range names("m", many) {
		stamp := containerbroker.Stamp{Namespace: namespace, UID: name}
		d := provisioner.Desired{
			Name: name, UID: name, Life: state.Alive, Generation: 1,
			Record:  spec.MachineRecord{Header: spec.Header{Declaration: "bench"}, Machine: spec.Machine{Type: spec.LXD, Image: "lxd:tiny"}},
			Status:  spec.MachineStatus{State: spec.MachinePending, ObservedGeneration: 1},
			Machine: containerbroker.Machine{Name: name, Stamp: stamp},
		}
		switch i % 4 {
		case 0, 1:
			stamp.Token = name
			there := containerbroker.Instance{Name: name, Status: containerbroker.StatusRunning, Stamp: &stamp}
			d.Status.State = spec.MachineRunning
			d.Status.Instance = &spec.InstanceInfo{Name: name, Token: name, Image: "lxd:tiny", Created: now}
			d.Status.Conditions = []spec.Condition{{Type: provisioner.ConditionReady, Status: true, Since: now}}
			if i%4 == 1 {
				d.Life, d.Generation = state.Dying, 2
				there.Status = containerbroker.StatusStopped
			}
			observed.Instances = append(observed.Instances, there)
		case 2:
			d.Status.State = spec.MachineError
		}
		desired = append(desired, d)
	}
	policy := provisioner.Policy{
		Namespace: namespace, Harvest: provisioner.HarvestAll, Now: now,
		Diff: func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change { return nil },
	}
	var all []time.Duration
	var steps int
	for range 10 {
		all = append(all, took(func() { steps = len(provisioner.Plan(desired, observed, policy)) }))
	}
	if steps < many/2 {
		b.Errorf("only %d steps are planned", steps)
	}
	bound("planning 10,000 machines", milliseconds(median(all)), 20, "ms", fmt.Sprintf("%d steps; median of 10: %s", steps, seconds(all)))
}

// BenchmarkAllocate gives many guests of one network their first address.
func BenchmarkAllocate(b *testing.B) {
	network := ipam.Network{Name: "lan", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/16")}}
	now := time.Now()
	var all []time.Duration
	for range 5 {
		given := map[netip.Addr]bool{}
		all = append(all, took(func() {
			pool := ipam.NewPool([]ipam.Network{network}, ipam.State{})
			for _, name := range names("m", many) {
				a, err := pool.Allocate("lan", false, ipam.Owner{Machine: name, NIC: "eth0"}, now)
				if err != nil {
					b.Fatal(err)
				}
				given[a] = true
			}
		}))
		if len(given) != many {
			b.Errorf("%d addresses are given", len(given))
		}
	}
	bound("10,000 address allocations", median(all).Seconds(), 1, "s", "median of 5: "+seconds(all))
}
