package networkprovisioner

import (
	"maps"
	"slices"
	"strings"
	"time"

	"hostler/agent/reconcile"
	"hostler/containerbroker"
	"hostler/hostnet"
)

// pairAge is how long a pair of devices may have both ends in the host. A
// hypervisor that starts an instance makes the pair and gives one end to the guest
// within about a second; thirty are enough on a very busy host. If the hypervisor
// is killed in between, the pair stays, and each later start of the instance fails
// because the device exists.
const pairAge = 30 * time.Second

// pairs holds the time at which a pass first saw each pair without a guest, by
// the kernel's number of the host's end.
type pairs map[int]time.Time

// see returns the host's ends of the pairs that have had no guest for pairAge, and
// the time at which the next pair is that old, or zero.
func (p pairs) see(links []hostnet.Link, now time.Time) (old []string, next time.Time) {
	there := map[int]bool{}
	for _, l := range links {
		if l.Pair == "" || !strings.HasPrefix(l.Name, containerbroker.PortPrefix) {
			continue
		}
		there[l.Index] = true
		if _, seen := p[l.Index]; !seen {
			p[l.Index] = now
		}
		if due := p[l.Index].Add(pairAge); due.After(now) {
			next = reconcile.Earliest(next, due)
		} else {
			old = append(old, l.Name)
		}
	}
	maps.DeleteFunc(p, func(index int, _ time.Time) bool { return !there[index] })
	return old, next
}

// abandoned plans the removal of the old pairs of the networks' guests.
func (m *maker) abandoned() (steps []hostnet.Step) {
	if len(m.o.Abandoned) == 0 {
		return nil
	}
	for i, n := range m.Networks {
		for _, g := range m.p.Networks[i].Guests {
			// An entry that only keeps an address has no MAC address.
			if port := containerbroker.PortOf(g.MAC); g.MAC != "" && slices.Contains(m.o.Abandoned, port) {
				steps = append(steps, hostnet.Step{Op: hostnet.RemovePair, UID: n.UID, Link: port})
			}
		}
	}
	return steps
}
