package networkprovisioner

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"hostler/agent/spec"
	"hostler/hostnet/ipam"
)

// remainingMark follows the name of a removed machine whose instance still
// exists, e.g. because it was released. The instance continues to use its
// addresses, running or stopped.
const remainingMark = " (removed, its instance is still there)"

// lookBefore is how long before the end of a quarantine the instances are
// looked up. It exceeds the time between observation and plan.
const lookBefore = time.Minute

// using asks the hypervisors whether the instances of removed machines still
// exist, by the MAC addresses of their interfaces. It asks only when an address
// is about to go to another machine: at the end of its quarantine, or when a
// machine of the same name appears. If the hypervisors do not answer, all
// entries are true.
func (e Eyes) using(ctx context.Context, d Desired) map[string]bool {
	if e.Instances == nil {
		return nil
	}
	all := map[string]bool{}
	for _, n := range d.Networks {
		wants := wanted(d, n)
		for k, g := range n.Status.Guests {
			if g.Released == nil || g.MAC == "" {
				continue
			}
			base, _, _ := strings.Cut(k, "#")
			w, again := wants[base]
			again = again && base == k && guestMAC(w.uid, ownerOf(base).NIC) != g.MAC
			if again || e.now().Sub(*g.Released) >= ipam.Quarantine-lookBefore {
				all[g.MAC] = true
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	there, err := e.Instances(ctx)
	for mac := range all {
		all[mac] = err != nil || there[mac]
	}
	return all
}

func (e Eyes) now() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}

// isRemaining reports whether an entry of a network's status belongs to an
// instance without a machine. Once confirmed, the entry's key ends with its MAC
// address, and it counts as remaining until an observation shows that the
// instance is gone.
func isRemaining(k string, g spec.GuestAddress, using map[string]bool) bool {
	if g.Released == nil || g.MAC == "" {
		return false
	}
	there, looked := using[g.MAC]
	return there || !looked && strings.HasSuffix(k, "#"+g.MAC)
}

// remainingOwner returns the owner of the addresses of such an entry.
func remainingOwner(n Network, k string, g spec.GuestAddress) ipam.Owner {
	base, _, _ := strings.Cut(k, "#")
	o := ownerOf(base)
	return nicOwner{o.Machine + remainingMark, o.NIC + "#" + g.MAC}.onNetwork(n.Name)
}

// withRemaining marks the entries of remaining instances, and restarts the
// quarantine of those whose instance was just seen.
func withRemaining(d Desired, o Observed, now time.Time) Desired {
	d.Networks = slices.Clone(d.Networks)
	for i := range d.Networks {
		n := &d.Networks[i]
		n.remaining = map[string]bool{}
		for k, g := range n.Status.Guests {
			if !isRemaining(k, g, o.Using) {
				continue
			}
			n.remaining[k] = true
			if o.Using[g.MAC] {
				n.Status.Guests = maps.Clone(n.Status.Guests)
				g.Released = &now
				n.Status.Guests[k] = g
			}
		}
	}
	return d
}

// copyRemaining copies the entries of remaining instances into the plan.
func copyRemaining(d Desired, planned []Planned, owners map[ipam.Owner]bool) {
	for i, n := range d.Networks {
		for k := range n.remaining {
			g := n.Status.Guests[k]
			base, _, _ := strings.Cut(k, "#")
			owners[remainingOwner(n, k, g)] = true
			planned[i].Guests[base+"#"+g.MAC] = spec.GuestAddress{MAC: g.MAC, Addresses: slices.Clone(g.Addresses), Released: g.Released}
		}
	}
}
