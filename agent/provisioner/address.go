package provisioner

import (
	"time"

	"hostler/agent/spec"
)

// firstAddressDelay is the shortest time between two looks for the address of a
// running machine.
const firstAddressDelay = time.Second

// addressDelay returns the time until the next look for the addresses of
// running machines that have none, e.g. machines with an image that waits for
// no DHCP client. Every look costs the hypervisor work, so the delay grows with
// the time since the start of the machine or worker, up to longest. It is 0 if
// every running machine has an address.
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
