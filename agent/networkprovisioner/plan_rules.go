package networkprovisioner

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/hostnet/dhcp"
	"hostler/hostnet/firewall"
)

// forwards reports whether the network's packets pass through the host. NAT
// implies forwarding.
func forwards(n spec.Network) bool { return n.Forwarding || n.NAT }

// addRules adds the rules of a network that is on, and of its guests.
func addRules(r *firewall.Rules, d Desired, n Network, p Planned, o Observed) {
	if !p.On {
		return
	}
	one := firewall.Network{
		Owner: n.UID, Bridge: p.Is.Bridge, Subnets: prefixes(p.Is.Addresses),
		Forward: forwards(p.Is), NAT: p.Is.NAT, Services: p.Is.DHCP,
	}
	if len(p.Is.Interfaces) > 0 {
		// The bridge replaces the host's NIC as its own connection, so the rules
		// block nothing on it.
		one = firewall.Network{Owner: n.UID, Bridge: p.Is.Bridge, Forward: true, HostAccess: true, Addresses: ofHost(p.Is, o)}
	}
	r.Networks = append(r.Networks, one)
	for _, k := range slices.Sorted(maps.Keys(p.Guests)) {
		g := p.Guests[k]
		machine := d.machine(ownerOf(k).Machine)
		one := firewall.Guest{Owner: orUnknown(machine.UID, g.MAC), Bridge: p.Is.Bridge, MAC: g.MAC, Ports: portsOf(k, g, machine), Addresses: usable(p.Guests, k, machine)}
		one.Router = machine.NICs[ownerOf(k).NIC].Router
		if g.Released == nil {
			r.Guests = append(r.Guests, one)
		}
	}
}

// linkName matches device names that the firewall accepts; hypervisors use no
// others.
var linkName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)

// portsOf returns the names of the host's end of an interface: the name that
// container types assign, and the name on an instance from before that scheme.
func portsOf(k string, g spec.GuestAddress, machine Machine) []string {
	all := []string{containerbroker.PortOf(g.MAC)}
	if at := machine.Ports[ownerOf(k).NIC].Device; linkName.MatchString(at) && at != all[0] {
		all = append(all, at)
	}
	return all
}

// ofHost returns the host's own addresses on a network's bridge: those declared,
// and those that the kernel has, e.g. from the NIC or a router's advertisement.
func ofHost(n spec.Network, o Observed) []netip.Addr {
	var all []netip.Addr
	for _, p := range prefixes(n.Addresses) {
		all = append(all, p.Addr())
	}
	for _, a := range o.Host.AddressesOf(n.Bridge) {
		all = append(all, a.Prefix.Addr())
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// orUnknown substitutes the owner of a guest whose machine is no longer known.
func orUnknown(uid, mac string) string {
	if uid == "" {
		return "unknown:" + mac
	}
	return uid
}

// usable returns the source addresses that an interface may use: its own and,
// until the instance is as declared, its previous addresses.
func usable(guests map[string]spec.GuestAddress, k string, machine Machine) []netip.Addr {
	own := addressesOf(guests[k])
	if !machine.Instance || machine.AttachmentsMatch {
		return own
	}
	for _, other := range slices.Sorted(maps.Keys(guests)) {
		if strings.HasPrefix(other, k+"#") {
			own = append(own, addressesOf(guests[other])...)
		}
	}
	return own
}

func addressesOf(g spec.GuestAddress) []netip.Addr {
	var all []netip.Addr
	for _, p := range prefixes(g.Addresses) {
		all = append(all, p.Addr())
	}
	return all
}

// publish adds the published ports to the rules. Each port leads to the
// machine's first interface that has an address. publish skips a port at which
// another process of the host listens, unless it is published already.
func (m *maker) publish() {
	r, d, planned := &m.p.Rules, m.d, m.p.Networks
	guests := slices.SortedFunc(slices.Values(d.Machines), func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	taken := map[string]string{}
	for _, g := range guests {
		if g.Dying || len(g.Publish) == 0 {
			continue
		}
		i, entry, ok := publishedBy(g, m.named, planned)
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
			for _, a := range addressesOf(entry) {
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

// publishedBy returns the first interface of a machine that has an address on a
// network that is on.
func publishedBy(g Machine, at map[string]int, planned []Planned) (int, spec.GuestAddress, bool) {
	for _, nic := range slices.Sorted(maps.Keys(g.NICs)) {
		i, ok := at[g.NICs[nic].Network]
		if !ok || !planned[i].On {
			continue
		}
		if entry, ok := planned[i].Guests[key(g.Name, nic)]; ok && entry.Released == nil && len(entry.Addresses) > 0 {
			return i, entry, true
		}
	}
	return 0, spec.GuestAddress{}, false
}

// served returns the configuration of a network's DHCP server, or nil.
func served(p Planned, o Observed) *dhcp.Network {
	if !p.On || !p.Is.DHCP {
		return nil
	}
	own := prefixes(p.Is.Addresses)
	spans, _ := ranges(own)
	bridge, _ := o.Host.Link(p.Is.Bridge)
	n := dhcp.Network{Bridge: p.Is.Bridge, Index: bridge.Index, Addresses: own, Ranges: spans, Search: o.Resolvers.Search}
	for _, k := range slices.Sorted(maps.Keys(p.Guests)) {
		g := p.Guests[k]
		if g.Released == nil && len(g.Addresses) > 0 {
			n.Hosts = append(n.Hosts, dhcp.Host{Name: strings.TrimRight(ownerOf(k).Machine, "-"), MAC: g.MAC, Addresses: addressesOf(g)})
		}
	}
	return &n
}
