package networkprovisioner

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"hostler/agent/spec"
	"hostler/hostnet/dhcp"
	"hostler/hostnet/ipam"
)

// poolOf returns the address pool of a network, with the recorded grants. On the
// network of a host's NIC no guest gets the address of the host's gateway.
func poolOf(n Network, is spec.Network, o Observed, wants map[string]want) *ipam.Pool {
	one := ipam.Network{Name: n.Name, Addresses: prefixes(is.Addresses)}
	if is.DHCP {
		_, one.Reserved = ranges(one.Addresses)
	}
	if len(is.Interfaces) > 0 {
		gateways, _ := towards(is, n.Status.Applied, o)
		for _, g := range gateways {
			a := netip.MustParseAddr(g)
			one.Reserved = append(one.Reserved, ipam.Range{First: a, Last: a})
		}
	}
	return ipam.NewPool([]ipam.Network{one}, ipam.State{Grants: withoutFormer(grants(n), wants)})
}

// withoutFormer returns the grants without those of NICs that their machines no longer
// declare, if the machine declares the same address for another NIC, e.g. because the NIC
// has another name now. The instance keeps the former NIC, and the address at it, until
// it gets the new one, so neither may wait for the other. A new NIC gets the former one's
// address of the other family too, since both share an entry of the DHCP server.
func withoutFormer(all []ipam.Grant, wants map[string]want) []ipam.Grant {
	heir := heirs(all, wants)
	after := map[ipam.Owner]ipam.Owner{} // the new NIC, by the former one
	all = slices.DeleteFunc(all, func(g ipam.Grant) bool {
		w, there := wants[key(g.Owner.Machine, nicOf(g))]
		k := heir[placeOf(g)]
		if k == "" || there && !w.keep {
			return false
		}
		after[g.Owner] = ownerOf(k).onNetwork(g.Network)
		return true
	})
	for i, g := range all {
		to, is := after[g.Owner]
		has := func(o ipam.Grant) bool {
			return o.Owner == to && o.Address.Is6() == g.Address.Is6() && o.Address != g.Address
		}
		if is && g.Released.IsZero() && heir[placeOf(g)] == "" && !slices.ContainsFunc(all, has) {
			all[i].Owner = to
		}
	}
	return all
}

// place is an address of a machine.
type place struct {
	machine string
	address netip.Addr
}

func placeOf(g ipam.Grant) place { return place{g.Owner.Machine, g.Address} }

// heirs returns the keys of the NICs that are to have an address, by place. It leaves out
// the address of a NIC that itself takes another's: the two must let go one after the other.
func heirs(all []ipam.Grant, wants map[string]want) map[place]string {
	to := map[place]string{}
	for k, w := range wants {
		for _, a := range w.family {
			to[place{ownerOf(k).Machine, a}] = k
		}
	}
	for _, g := range all {
		a, is := wants[key(g.Owner.Machine, nicOf(g))].family[g.Address.Is6()]
		if is && a != g.Address && g.Released.IsZero() && to[placeOf(g)] != "" {
			delete(to, place{g.Owner.Machine, a})
		}
	}
	return to
}

// demand is a NIC that needs an address of one IP version.
type demand struct {
	want
	owner ipam.Owner
	six   bool
}

// giveOut gives every NIC an address of each IP version that its network has.
// It gives out declared addresses first, then addresses observed on guests,
// then free addresses. It returns the failures.
func giveOut(pool *ipam.Pool, n Network, wants map[string]want, own []netip.Prefix, now time.Time) (errs []error) {
	fail := func(one demand, err error) {
		errs = append(errs, fmt.Errorf("machine/%s: %w", one.owner.Machine, err))
	}
	declared, rest := demands(n, wants, own)
	for len(declared) > 0 {
		var failed []demand
		for _, one := range declared {
			if err := pool.Declare(n.Name, one.family[one.six], one.owner, now); err != nil {
				failed = append(failed, one)
			}
		}
		if len(failed) == len(declared) {
			break
		}
		declared = failed // another NIC may have released their addresses
	}
	for _, one := range declared {
		fail(one, pool.Declare(n.Name, one.family[one.six], one.owner, now))
	}
	for _, one := range rest {
		for _, a := range one.has { // the guest has addresses but no entry after the loss of a store
			inside := slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Contains(a) })
			if !one.had && a.Is6() == one.six && !a.IsLinkLocalUnicast() && inside {
				_ = pool.Declare(n.Name, a, one.owner, now) // if this fails, Allocate() chooses another
			}
		}
	}
	for _, one := range rest {
		if _, err := pool.Allocate(n.Name, one.six, one.owner, now); err != nil {
			fail(one, err)
		}
	}
	return errs
}

// demands returns the demands on a network with the addresses own, sorted by
// key. It returns demands with a declared address apart from the others.
func demands(n Network, wants map[string]want, own []netip.Prefix) (declared, others []demand) {
	for _, k := range slices.Sorted(maps.Keys(wants)) {
		for _, six := range []bool{false, true} {
			one := demand{wants[k], ownerOf(k).onNetwork(n.Name), six}
			_, names := one.family[six]
			switch {
			case one.keep, !slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Addr().Is6() == six }):
			case names:
				declared = append(declared, one)
			default:
				others = append(others, one)
			}
		}
	}
	return declared, others
}

// leastRanged is the number of addresses from which a subnet reserves a part
// for undeclared guests.
const leastRanged = 16

// ranges returns the DHCP ranges for undeclared guests. The range of a subnet
// is its upper quarter, or all of it if it has fewer than leastRanged
// addresses. For IPv6 it has at most 65,536 addresses. For example, 10.0.0.0/24
// yields 10.0.0.192 to 10.0.0.254. Declared guests get no addresses of the
// reserved ranges.
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
// than 18 host bits it returns the last of the 65,536 addresses that begin with
// the address of withHostBits().
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
