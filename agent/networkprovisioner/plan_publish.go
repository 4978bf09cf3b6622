package networkprovisioner

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/hostnet/firewall"
)

// publish adds the published ports to the rules. publish skips a port at which a
// process of the host listens, unless the port is already published.
func (m *maker) publish() {
	r, planned := &m.p.Rules, m.p.Networks
	guests := slices.SortedFunc(slices.Values(m.Machines), func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	taken := map[string]string{}
	for _, g := range guests {
		if g.Dying || len(g.Publish) == 0 {
			continue
		}
		i, addresses, ok := m.publishedBy(g)
		if !ok {
			continue
		}
		for _, p := range g.Publish {
			port := fmt.Sprintf("%s/%d", p.Protocol, p.HostPort)
			switch {
			case taken[port] != "":
				planned[i].Notes = append(planned[i].Notes, fmt.Sprintf("%s port %d of the host is already published by machine/%s, so machine/%s is not reached by it", p.Protocol, p.HostPort, taken[port], g.Name))
				continue
			case m.o.Listening[port] && !m.published[port]:
				planned[i].Notes = append(planned[i].Notes, portInUse(g.Name, p))
				continue
			}
			taken[port] = g.Name
			at, _ := slices.BinarySearch(planned[i].Published, port)
			planned[i].Published = slices.Insert(planned[i].Published, at, port)
			for _, a := range addresses {
				r.Publish = append(r.Publish, firewall.Publish{
					Owner: g.UID, Bridge: planned[i].Is.Bridge, Protocol: p.Protocol, HostPort: uint16(p.HostPort),
					Address: a, Port: uint16(p.Port), Sources: prefixes(p.Sources),
				})
			}
		}
	}
}

func portInUse(machine string, p spec.Publish) string {
	return fmt.Sprintf("%s port %d of the host is in use by a process of the host (see `ss -ln`), so machine/%s cannot be reached by it; publish another port, or end that process",
		p.Protocol, p.HostPort, machine)
}

// publishedBy returns the addresses to which the machine's ports lead, and the
// position of their network. These are the addresses of the machine's first NIC
// that has any on a network that is on the host. ok is false if there is none.
func (m *maker) publishedBy(g Machine) (at int, addresses []netip.Addr, ok bool) {
	var led string // the NIC
	for _, nic := range slices.Sorted(maps.Keys(g.NICs)) {
		i, declared := m.named[g.NICs[nic].Network]
		if !declared || !m.p.Networks[i].On {
			continue
		}
		entry, has := m.p.Networks[i].Guests[key(g.Name, nic)]
		if has && entry.Released == nil && len(entry.Addresses) > 0 {
			led, at, addresses, ok = nic, i, addressesOf(entry), true
			break
		}
	}
	if ok {
		if i, former := m.formerly(g, led, addresses); len(former) > 0 {
			return i, former, true
		}
	}
	return at, addresses, ok
}

// formerly returns the addresses, one of each family, that an instance still has at a
// NIC of before its declaration changed, e.g. while its restart awaits permission,
// and the position of their network. It returns none if the instance has one of the
// addresses given to the NIC since. A guest may have several former addresses, and give
// itself further ones.
func (m *maker) formerly(g Machine, nic string, given []netip.Addr) (at int, former []netip.Addr) {
	has := func(a netip.Addr) bool { return slices.Contains(given, a) }
	if !g.made() || g.AttachmentsMatch || slices.ContainsFunc(g.Addresses, has) {
		return 0, nil
	}
	k := key(g.Name, nic)
	for i, p := range m.p.Networks {
		if !p.On {
			continue
		}
		for _, a := range g.Addresses {
			before, kept := p.Guests[k+"#"+a.String()]
			now := p.Guests[k] // of a network that the NIC leaves
			left := m.named[g.NICs[nic].Network] != i && now.Released == nil && slices.Contains(addressesOf(now), a)
			alike := func(b netip.Addr) bool { return b.Is4() == a.Is4() }
			if (kept && before.MAC == "" || left) && !slices.ContainsFunc(former, alike) {
				at, former = i, append(former, a)
			}
		}
		if len(former) > 0 {
			break
		}
	}
	if len(former) == 0 {
		return m.undeclared(g)
	}
	return at, former
}

// undeclared returns the addresses that an instance still has at a NIC that its machine no
// longer declares, and whose place another NIC takes, and the position of their network.
func (m *maker) undeclared(g Machine) (at int, has []netip.Addr) {
	for i, p := range m.p.Networks {
		if !p.On {
			continue
		}
		for _, k := range slices.Sorted(maps.Keys(p.Guests)) {
			o, entry := ownerOf(k), p.Guests[k]
			if _, declared := g.NICs[o.NIC]; declared || o.Machine != g.Name || entry.Released != nil || strings.Contains(k, "#") {
				continue
			}
			has = slices.DeleteFunc(addressesOf(entry), func(a netip.Addr) bool { return !slices.Contains(g.Addresses, a) })
			if len(has) > 0 {
				return i, has
			}
		}
	}
	return 0, nil
}
