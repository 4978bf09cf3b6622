package ipam

import (
	"cmp"
	"net/netip"
	"slices"

	"hostler/internal/fault"
)

// subnets returns the network's IPv6 subnets if six is set, otherwise its IPv4
// subnets, in order.
func (n Network) subnets(six bool) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range n.Addresses {
		if p.Addr().Is6() == six {
			all = append(all, p.Masked())
		}
	}
	slices.SortFunc(all, comparePrefix)
	return slices.Compact(all)
}

func (n Network) subnet(a netip.Addr) (netip.Prefix, bool) {
	for _, p := range n.Addresses {
		if p.Contains(a) {
			return p.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// host reports whether the address belongs to the host itself.
func (n Network) host(a netip.Addr) bool {
	return slices.ContainsFunc(n.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
}

// reserved returns the last address of the reserved range that contains a, or
// false.
func (n Network) reserved(a netip.Addr) (netip.Addr, bool) {
	for _, r := range n.Reserved {
		if r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0 {
			return r.Last, true
		}
	}
	return netip.Addr{}, false
}

// usable reports whether a may be assigned. It refuses the subnet's first
// address, which in IPv6 means any router, and the IPv4 broadcast address.
// Subnets with one or two addresses have no such addresses.
func usable(subnet netip.Prefix, a netip.Addr) bool {
	if subnet.Bits() >= a.BitLen()-1 {
		return true
	}
	return a != subnet.Addr() && (a.Is6() || subnet.Contains(a.Next()))
}

// HostRoute is a network that the host already reaches.
type HostRoute struct {
	Destination netip.Prefix
	Link        string
}

// Clash returns an error if a subnet of the network overlaps a route of the
// host, or nil. Default routes do not count. The caller must leave out the
// routes of the network's own bridge.
func Clash(n Network, routes []HostRoute) error {
	for _, p := range n.Addresses {
		for _, r := range routes {
			if r.Destination.Bits() > 0 && r.Destination.Overlaps(p) {
				return fault.New(fault.Conflict, "cannot use the subnet %s for the network %s: the host reaches %s over %s", p.Masked(), n.Name, r.Destination, r.Link)
			}
		}
	}
	return nil
}

// Overlap returns an error naming two networks that share addresses, or nil.
func Overlap(networks []Network) error {
	type subnet struct {
		prefix  netip.Prefix
		network string
	}
	var all []subnet
	for _, n := range networks {
		for _, p := range n.Addresses {
			all = append(all, subnet{p.Masked(), n.Name})
		}
	}
	slices.SortFunc(all, func(a, b subnet) int {
		return cmp.Or(comparePrefix(a.prefix, b.prefix), cmp.Compare(a.network, b.network))
	})
	// Prefixes either nest or are disjoint. In the sorted order, a subnet
	// overlaps all[widest] or no preceding subnet.
	for i, widest := 1, 0; i < len(all); i++ {
		a, b := all[widest], all[i]
		if !a.prefix.Overlaps(b.prefix) {
			widest = i
			continue
		}
		if a.network != b.network {
			return fault.New(fault.Invalid, "cannot use the subnet %s for the network %s: it overlaps %s of the network %s", b.prefix, b.network, a.prefix, a.network)
		}
	}
	return nil
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
