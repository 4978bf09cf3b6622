package provisioner

import (
	"time"

	"hostler/agent/spec"
)

// firstAddressDelay lies between two looks for the address of a machine that
// has just started.
const firstAddressDelay = time.Second

// addressDelay is how soon to look again for the address of a running machine
// that has none: an image that tells of no DHCP client is ready without. The
// looks become rarer with the time since the machine or the worker started, as
// every look costs the hypervisor work, and never end. 0: every running machine
// has an address.
func addressDelay(desired []Desired, begun, now time.Time, longest time.Duration) time.Duration {
	soonest := time.Duration(0)
	for _, d := range desired {
		if d.Status.State != spec.MachineRunning || len(d.Status.Addresses) > 0 {
			continue
		}
		since := begun
		if at := d.Status.StartedAt; at != nil && at.After(since) {
			since = *at
		}
		delay := min(max(now.Sub(since)/8, firstAddressDelay), max(longest, firstAddressDelay))
		if soonest == 0 || delay < soonest {
			soonest = delay
		}
	}
	return soonest
}
