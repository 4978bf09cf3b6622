package networkprovisioner

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/hostnet/ipam"
)

// guestMAC returns the MAC address of a machine's NIC. The address depends on
// the machine's uid, so it is unique and stays the same for the machine's life.
func guestMAC(machineUID, nic string) string {
	sum := sha256.Sum256([]byte(machineUID + "\n" + nic))
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

// prefixes parses addresses. It leaves out invalid ones, which package spec has
// already rejected.
func prefixes(texts []string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// key returns the key of a machine's NIC in a network's status.
func key(machine, nic string) string { return machine + "/" + nic }

// assign gives every NIC on a network its declared address, its previous address
// or a free address. Released addresses stay reserved until the end of their
// quarantine.
func (m *maker) assign(n Network, p *Planned) {
	own := prefixes(p.Is.Addresses)
	wants := m.wantsOn(n)
	pool := poolOf(n, p.Is, m.o, wants)
	for k, w := range wants {
		if w.before {
			pool.Hold(ownerOf(k).onNetwork(n.Name), m.policy.Now)
		}
	}
	for _, err := range giveOut(pool, n, wants, own, m.policy.Now) {
		p.Notes = append(p.Notes, err.Error())
	}
	owners := map[ipam.Owner]bool{}
	p.Guests = map[string]spec.GuestAddress{}
	for k, w := range wants {
		owners[ownerOf(k).onNetwork(n.Name)] = true
		g := spec.GuestAddress{Machine: w.uid, MAC: guestMAC(w.uid, ownerOf(k).NIC), Addresses: []string{}}
		if w.keep {
			g = n.Status.Guests[k]
			g.Addresses = slices.Clone(g.Addresses)
		} else if len(own) == 0 && w.nic.Address != "" {
			g.Addresses, g.Declared = []string{w.nic.Address}, true
		}
		p.Guests[k] = g
	}
	for k := range n.remaining {
		g := n.Status.Guests[k]
		base, _, _ := strings.Cut(k, "#")
		owners[remainingOwner(n, k, g)] = true
		p.Guests[base+"#"+g.MAC] = spec.GuestAddress{MAC: g.MAC, Addresses: slices.Clone(g.Addresses), Released: g.Released}
	}
	pool.Retain(owners, m.policy.Now)
	pool.Prune(m.policy.Now)
	collect(pool.State(), n, p, own)
	// A NIC that got no address has no entry yet, so its machine waits.
	for k, w := range wants {
		if g := p.Guests[k]; !w.keep && len(g.Addresses) == 0 && len(own) > 0 {
			delete(p.Guests, k)
		}
	}
}

// collect copies the pool's grants into the plan.
func collect(s ipam.State, n Network, planned *Planned, own []netip.Prefix) {
	for _, g := range s.Grants {
		if strings.HasSuffix(g.Owner.Machine, remainingMark) {
			continue // assign() has copied the grant
		}
		k := key(g.Owner.Machine, nicOf(g))
		text := g.Address.String()
		for _, p := range own {
			if p.Contains(g.Address) {
				text = netip.PrefixFrom(g.Address, p.Bits()).String()
			}
		}
		entry, has := planned.Guests[k]
		switch {
		case !g.Released.IsZero() && has && entry.Released == nil:
			// The owner has another address now, so store the released address
			// under a key that no NIC can have.
			k = fmt.Sprintf("%s#%s", k, g.Address)
			released := g.Released
			planned.Guests[k] = spec.GuestAddress{Addresses: []string{text}, Released: &released}
			continue
		case !g.Released.IsZero():
			released := g.Released
			if !has {
				entry.Machine, entry.MAC = n.Status.Guests[k].Machine, n.Status.Guests[k].MAC
			}
			entry.Released = &released
		default:
			entry.Declared = entry.Declared || g.Declared
		}
		if !slices.Contains(addressesOf(entry), g.Address) && !slices.Contains(entry.Addresses, text) {
			entry.Addresses = append(entry.Addresses, text)
		}
		planned.Guests[k] = entry
	}
}

// want is a NIC that needs addresses. If keep is true, the NIC keeps its
// current addresses, because the machine still uses the NIC but no longer
// declares it.
type want struct {
	nic    spec.NIC
	uid    string
	keep   bool
	had    bool                // the network's status has an entry
	before bool                // the instance may still have its addresses of before
	has    []netip.Addr        // addresses observed on the guest
	family map[bool]netip.Addr // declared addresses, with the key true for IPv6
}

// wantsOn returns the NICs that need addresses of a network, by their keys.
func (d Desired) wantsOn(n Network) map[string]want {
	all := map[string]want{}
	held := map[string][]string{} // by machine
	for k, entry := range n.Status.Guests {
		if entry.Released == nil {
			held[ownerOf(k).Machine] = append(held[ownerOf(k).Machine], k)
		}
	}
	for _, g := range d.guestsOf(n) {
		for name, nic := range g.NICs {
			if nic.Network != n.Name || g.Dying {
				continue
			}
			w := want{nic: nic, uid: g.UID, before: g.made() && !g.AttachmentsMatch, has: g.Addresses, family: map[bool]netip.Addr{}}
			_, w.had = n.Status.Guests[key(g.Name, name)]
			if p, err := netip.ParsePrefix(nic.Address); err == nil {
				w.family[p.Addr().Is6()] = p.Addr()
			}
			all[key(g.Name, name)] = w
		}
		for _, k := range held[g.Name] {
			if _, ok := all[k]; !ok && g.Status.InUse(spec.NICObject(n.Name, ownerOf(k).NIC)) {
				all[k] = want{uid: g.UID, keep: true}
			}
		}
	}
	return all
}

type nicOwner struct{ Machine, NIC string }

func ownerOf(k string) nicOwner {
	machine, nic, _ := strings.Cut(k, "/")
	return nicOwner{machine, nic}
}

func (o nicOwner) onNetwork(network string) ipam.Owner {
	return ipam.Owner{Machine: o.Machine, NIC: network + ":" + o.NIC}
}

// nicOf returns the name of the NIC that has the granted address.
func nicOf(g ipam.Grant) string { return strings.TrimPrefix(g.Owner.NIC, g.Network+":") }

// grants returns the addresses recorded in a network's status.
func grants(n Network) []ipam.Grant {
	var all []ipam.Grant
	for k, g := range n.Status.Guests {
		name, _, _ := strings.Cut(k, "#")
		for _, p := range prefixes(g.Addresses) {
			grant := ipam.Grant{Network: n.Name, Address: p.Addr(), Owner: ownerOf(name).onNetwork(n.Name), Declared: g.Declared}
			switch {
			case n.remaining[k]:
				grant.Owner = remainingOwner(n, k, g)
			case g.Released != nil:
				grant.Released = *g.Released
			}
			all = append(all, grant)
		}
	}
	// Sort current grants last, because in the pool a later grant overrides an
	// earlier one.
	slices.SortFunc(all, func(a, b ipam.Grant) int {
		if c := b.Released.Compare(a.Released); c != 0 {
			return c
		}
		return cmp.Or(a.Address.Compare(b.Address), strings.Compare(a.Owner.Machine, b.Owner.Machine), strings.Compare(a.Owner.NIC, b.Owner.NIC))
	})
	return all
}

// remainingMark follows the name of a removed machine in the owner of its
// addresses if its instance still exists, e.g. because it was released. The
// instance keeps its addresses, even while it is stopped.
const remainingMark = " (removed, its instance is still there)"

// isRemaining reports whether an entry of a network's status belongs to an
// instance without a machine. After an observation has shown that the instance
// exists, the entry's key ends with the MAC address. The entry then counts as
// remaining until an observation shows that the instance is gone.
func isRemaining(k string, g spec.GuestAddress, using map[string]bool) bool {
	if g.Released == nil || g.MAC == "" {
		return false
	}
	there, looked := using[g.MAC]
	return there || !looked && strings.HasSuffix(k, "#"+g.MAC)
}

// remainingOwner returns the owner of the addresses in an entry of a remaining
// instance.
func remainingOwner(n Network, k string, g spec.GuestAddress) ipam.Owner {
	base, _, _ := strings.Cut(k, "#")
	o := ownerOf(base)
	return nicOwner{o.Machine + remainingMark, o.NIC + "#" + g.MAC}.onNetwork(n.Name)
}

// markRemaining marks the entries of remaining instances. It restarts the
// quarantine of an entry whose instance was observed.
func (m *maker) markRemaining(n *Network) {
	n.remaining = map[string]bool{}
	now := m.policy.Now
	for k, g := range n.Status.Guests {
		if !isRemaining(k, g, m.o.Using) {
			continue
		}
		n.remaining[k] = true
		if m.o.Using[g.MAC] {
			n.Status.Guests = maps.Clone(n.Status.Guests)
			g.Released = &now
			n.Status.Guests[k] = g
		}
	}
}

// offerAgain takes back the release of addresses whose machine began to use the
// NIC meanwhile. They stay offered until the machine no longer uses the NIC.
func (d Desired) offerAgain(n *Network) {
	guests := maps.Clone(n.Status.Guests)
	for k, g := range guests {
		owner := ownerOf(k)
		machine := d.machine(owner.Machine)
		if g.Machine != "" && g.Machine == machine.UID && g.Phase(machine.Status.InUse(spec.NICObject(n.Name, owner.NIC))) == spec.PhaseWithdrawn {
			g.Released = nil
			guests[k] = g
		}
	}
	n.Status.Guests = guests
}
