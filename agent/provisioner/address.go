package provisioner

import (
	"time"

	"hostler/agent/spec"
)

// firstAddressDelay is the shortest delay that addressDelay returns for a
// running machine without an address.
const firstAddressDelay = time.Second

// addressDelay returns the delay until the worker next reads the addresses of
// running machines whose status has none. A machine is ready before it has an
// address if e.g. its image does not wait for its DHCP client. Each read costs
// the hypervisor work, so the delay grows with the time since the start of the
// machine or worker, up to longest. It is 0 if every running machine has an
// address.
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
