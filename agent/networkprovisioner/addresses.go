package networkprovisioner

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/hostnet/dhcp"
	"hostler/hostnet/ipam"
)

// guestMAC returns the MAC address of a machine's interface. It depends on the
// machine's uid, so it is unique and stays the same for the machine's life.
func guestMAC(machineUID, nic string) string {
	sum := sha256.Sum256([]byte(machineUID + "\n" + nic))
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

// prefixes parses addresses that package spec has already validated.
func prefixes(texts []string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// leastRanged is the minimum size of a subnet that reserves a part for
// undeclared guests.
const leastRanged = 16

// ranges returns the DHCP ranges for undeclared guests: the upper quarter of
// each subnet, or the whole of a subnet with fewer than leastRanged addresses;
// for IPv6 at most 65,536 addresses. For example, 10.0.0.0/24 yields 10.0.0.192
// to 10.0.0.254. The reserved ranges are kept from declared guests.
func ranges(own []netip.Prefix) (all []dhcp.Range, reserved []ipam.Range) {
	seen := map[netip.Prefix]bool{}
	for _, p := range own {
		subnet := p.Masked()
		if seen[subnet] {
			continue
		}
		seen[subnet] = true
		bits := subnet.Addr().BitLen() - subnet.Bits()
		first, last := subnet.Addr().Next(), lastOf(subnet)
		small := bits < 63 && 1<<bits < leastRanged
		if !small {
			first = withHostBits(subnet, max(bits-2, 0), bits)
		}
		if subnet.Addr().Is4() {
			last = last.Prev()
		}
		for _, h := range own { // exclude the host's own addresses
			switch {
			case h.Addr() == first:
				first = first.Next()
			case h.Addr() == last:
				last = last.Prev()
			case first.Less(h.Addr()) && h.Addr().Less(last):
				first = h.Addr().Next()
			}
		}
		if last.Less(first) {
			continue
		}
		all = append(all, dhcp.Range{First: first, Last: last})
		if !small {
			reserved = append(reserved, ipam.Range{First: first, Last: last})
		}
	}
	return all, reserved
}

// withHostBits returns the first address of the subnet's upper quarter. For an
// IPv6 subnet with more than 18 host bits it returns the address at offset
// 0x10000.
func withHostBits(subnet netip.Prefix, quarter, bits int) netip.Addr {
	b := subnet.Addr().AsSlice()
	if bits > 18 && subnet.Addr().Is6() {
		b[len(b)-3] |= 1
		a, _ := netip.AddrFromSlice(b)
		return a
	}
	for _, bit := range []int{quarter, quarter + 1} {
		b[len(b)-1-bit/8] |= 1 << (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// lastOf returns the last address of a subnet. For an IPv6 subnet with more
// than 18 host bits it returns the end of the 65,536 addresses that
// withHostBits starts.
func lastOf(subnet netip.Prefix) netip.Addr {
	b := subnet.Addr().AsSlice()
	bits := len(b)*8 - subnet.Bits()
	if bits > 18 && subnet.Addr().Is6() {
		b[len(b)-3] |= 1
		bits = 16
	}
	for bit := range bits {
		b[len(b)-1-bit/8] |= 1 << (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// key is the key of a machine's interface in a network's status.
func key(machine, nic string) string { return machine + "/" + nic }

// assign gives every interface its addresses: the declared address, the
// previous address, or a free address. Released addresses wait for their
// quarantine.
func assign(d Desired, planned []Planned, policy Policy) {
	pool, prefixOf := poolOf(d, planned)
	errs := giveOut(pool, d, prefixOf, policy)
	owners := map[ipam.Owner]bool{}
	for i, n := range d.Networks {
		wants := wanted(d, n)
		for k := range wants {
			owners[ownerOf(k).onNetwork(n.Name)] = true
		}
		planned[i].Guests = map[string]spec.GuestAddress{}
		for k, w := range wants {
			g := spec.GuestAddress{Machine: w.uid, MAC: guestMAC(w.uid, ownerOf(k).NIC), Addresses: []string{}}
			if w.keep {
				g = n.Status.Guests[k]
				g.Addresses = slices.Clone(g.Addresses)
			} else if len(prefixOf[n.Name]) == 0 && w.nic.Address != "" {
				g.Addresses, g.Declared = []string{w.nic.Address}, true
			}
			planned[i].Guests[k] = g
		}
	}
	copyRemaining(d, planned, owners)
	pool.Retain(owners, policy.Now)
	pool.Prune(policy.Now)
	at := map[string]int{}
	for i, n := range d.Networks {
		at[n.Name] = i
		for _, err := range errs[n.Name] {
			planned[i].Notes = append(planned[i].Notes, err.Error())
		}
	}
	collect(pool.State(), d, planned, prefixOf, at)
	// An interface without its addresses gets no entry yet, so its machine
	// waits.
	for i, n := range d.Networks {
		for k, w := range wanted(d, n) {
			if g := planned[i].Guests[k]; !w.keep && len(g.Addresses) == 0 && len(prefixOf[n.Name]) > 0 {
				delete(planned[i].Guests, k)
			}
		}
	}
}

// collect copies the pool's grants into the plan.
func collect(s ipam.State, d Desired, planned []Planned, prefixOf map[string][]netip.Prefix, at map[string]int) {
	for _, g := range s.Grants {
		if strings.HasSuffix(g.Owner.Machine, remainingMark) {
			continue // see copyRemaining
		}
		i := at[g.Network]
		k := key(g.Owner.Machine, nicOf(g))
		text := g.Address.String()
		for _, p := range prefixOf[g.Network] {
			if p.Contains(g.Address) {
				text = netip.PrefixFrom(g.Address, p.Bits()).String()
			}
		}
		entry, has := planned[i].Guests[k]
		switch {
		case !g.Released.IsZero() && has && entry.Released == nil:
			// The owner has another address now; the released address is stored
			// under a key that no interface can have.
			k = fmt.Sprintf("%s#%s", k, g.Address)
			released := g.Released
			planned[i].Guests[k] = spec.GuestAddress{Addresses: []string{text}, Released: &released}
			continue
		case !g.Released.IsZero():
			released := g.Released
			if !has {
				entry.MAC = d.Networks[i].Status.Guests[k].MAC
			}
			entry.Released = &released
		default:
			entry.Declared = entry.Declared || g.Declared
		}
		if !slices.Contains(entry.Addresses, text) {
			entry.Addresses = append(entry.Addresses, text)
		}
		planned[i].Guests[k] = entry
	}
}

// want is the demand of an interface. keep preserves its current addresses,
// because the instance still uses them.
type want struct {
	nic    spec.NIC
	uid    string
	keep   bool
	had    bool                // the status has an entry
	has    []netip.Addr        // addresses observed on the guest
	family map[bool]netip.Addr // declared addresses; the key true stands for IPv6
}

// wanted returns the interfaces on a network by their keys.
func wanted(d Desired, n Network) map[string]want {
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
			w := want{nic: nic, uid: g.UID, has: g.Addresses, family: map[bool]netip.Addr{}}
			_, w.had = n.Status.Guests[key(g.Name, name)]
			if p, err := netip.ParsePrefix(nic.Address); err == nil {
				w.family[p.Addr().Is6()] = p.Addr()
			}
			all[key(g.Name, name)] = w
		}
		if g.AttachmentsMatch && !g.Dying || g.Dying && !g.Instance {
			continue
		}
		for _, k := range held[g.Name] {
			if _, ok := all[k]; !ok {
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

// nicOf returns the name of the interface that has the address.
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
	// Current grants come last: in the pool they override released grants.
	slices.SortFunc(all, func(a, b ipam.Grant) int {
		if c := b.Released.Compare(a.Released); c != 0 {
			return c
		}
		return a.Address.Compare(b.Address)
	})
	return all
}
