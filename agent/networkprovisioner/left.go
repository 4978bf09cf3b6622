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

// leftMark follows the name of a machine that is gone and whose instance is
// still there, e.g. because it was released: the instance goes on using its
// addresses, running or stopped.
const leftMark = " (removed, its instance is still there)"

// lookBefore is how long before the end of a rest the instances are looked at:
// longer than the time between the look and the plan.
const lookBefore = time.Minute

// using asks the hypervisors whether the instances of machines that are gone
// are still there, by the MAC addresses of their interfaces. It asks only where
// an address is about to be given to another machine: at the end of its rest,
// or when a machine of the same name is there. An entry is true also where the
// hypervisors cannot be asked.
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

// isLeft says whether an entry of a network's status belongs to an instance
// without a machine. Once seen to be so its key names its MAC address, and it
// stays so until a look shows that the instance is gone.
func isLeft(k string, g spec.GuestAddress, using map[string]bool) bool {
	if g.Released == nil || g.MAC == "" {
		return false
	}
	there, looked := using[g.MAC]
	return there || !looked && strings.HasSuffix(k, "#"+g.MAC)
}

// leftOwner is the owner of the addresses of such an entry.
func leftOwner(n Network, k string, g spec.GuestAddress) ipam.Owner {
	base, _, _ := strings.Cut(k, "#")
	o := ownerOf(base)
	return nicOwner{o.Machine + leftMark, o.NIC + "#" + g.MAC}.onNetwork(n.Name)
}

// withLeft marks the entries that are left, and renews the rest of those whose
// instance was just seen.
func withLeft(d Desired, o Observed, now time.Time) Desired {
	d.Networks = slices.Clone(d.Networks)
	for i := range d.Networks {
		n := &d.Networks[i]
		n.left = map[string]bool{}
		for k, g := range n.Status.Guests {
			if !isLeft(k, g, o.Using) {
				continue
			}
			n.left[k] = true
			if o.Using[g.MAC] {
				n.Status.Guests = maps.Clone(n.Status.Guests)
				g.Released = &now
				n.Status.Guests[k] = g
			}
		}
	}
	return d
}

// keepLeft writes what is left into the plan.
func keepLeft(d Desired, planned []Planned, owners map[ipam.Owner]bool) {
	for i, n := range d.Networks {
		for k := range n.left {
			g := n.Status.Guests[k]
			base, _, _ := strings.Cut(k, "#")
			owners[leftOwner(n, k, g)] = true
			planned[i].Guests[base+"#"+g.MAC] = spec.GuestAddress{MAC: g.MAC, Addresses: slices.Clone(g.Addresses), Released: g.Released}
		}
	}
}
