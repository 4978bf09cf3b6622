package networkprovisioner

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"hostler/hostnet/ipam"
)

// poolOf returns the address pool of the planned networks, with the recorded
// grants.
func poolOf(d Desired, planned []Planned) (pool *ipam.Pool, prefixOf map[string][]netip.Prefix) {
	var networks []ipam.Network
	var assigned ipam.State
	prefixOf = map[string][]netip.Prefix{}
	for i, n := range d.Networks {
		own := prefixes(planned[i].Is.Addresses)
		prefixOf[n.Name] = own
		one := ipam.Network{Name: n.Name, Addresses: own}
		if planned[i].Is.DHCP {
			_, one.Reserved = ranges(own)
		}
		networks = append(networks, one)
		assigned.Grants = append(assigned.Grants, grants(n)...)
	}
	return ipam.NewPool(networks, assigned), prefixOf
}

// demand is an interface that needs an address of a family.
type demand struct {
	want
	owner ipam.Owner
	six   bool
}

// giveOut gives every interface an address of each family that its network has:
// first the declared addresses, then the addresses observed on guests, then
// free addresses. It returns the failures by network.
func giveOut(pool *ipam.Pool, d Desired, prefixOf map[string][]netip.Prefix, policy Policy) map[string][]error {
	errs := map[string][]error{}
	fail := func(network string, one demand, err error) {
		errs[network] = append(errs[network], fmt.Errorf("machine/%s: %w", one.owner.Machine, err))
	}
	for _, n := range d.Networks {
		declared, rest := demands(d, n, prefixOf[n.Name])
		for len(declared) > 0 {
			var failed []demand
			for _, one := range declared {
				if err := pool.Declare(n.Name, one.family[one.six], one.owner, policy.Now); err != nil {
					failed = append(failed, one)
				}
			}
			if len(failed) == len(declared) {
				break
			}
			declared = failed // another interface may have released their addresses
		}
		for _, one := range declared {
			fail(n.Name, one, pool.Declare(n.Name, one.family[one.six], one.owner, policy.Now))
		}
		for _, one := range rest {
			for _, a := range one.has { // after the loss of a store
				inside := slices.ContainsFunc(prefixOf[n.Name], func(p netip.Prefix) bool { return p.Contains(a) })
				if !one.had && a.Is6() == one.six && !a.IsLinkLocalUnicast() && inside {
					_ = pool.Declare(n.Name, a, one.owner, policy.Now) // on failure Allocate chooses another
				}
			}
		}
		for _, one := range rest {
			if _, err := pool.Allocate(n.Name, one.six, one.owner, policy.Now); err != nil {
				fail(n.Name, one, err)
			}
		}
	}
	return errs
}

// demands returns the demands on a network with these addresses, in the order
// of their keys: those with a declared address, and the others.
func demands(d Desired, n Network, own []netip.Prefix) (declared, others []demand) {
	wants := wanted(d, n)
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
