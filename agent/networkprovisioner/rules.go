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
	"hostler/hostnet"
	"hostler/hostnet/dhcp"
	"hostler/hostnet/firewall"
	"hostler/sysctl"
)

// forwards reports whether the network's packets pass through the host. NAT
// implies forwarding.
func forwards(n spec.Network) bool { return n.Forwarding || n.NAT }

// rules returns the rules of all networks that are on, and of their guests.
func rules(d Desired, planned []Planned, o Observed) firewall.Rules {
	var r firewall.Rules
	machines := map[string]Machine{}
	for _, g := range d.Machines {
		machines[g.Name] = g
	}
	for i, n := range d.Networks {
		p := planned[i]
		if !p.On {
			continue
		}
		one := firewall.Network{
			Owner: n.UID, Bridge: p.Is.Bridge, Subnets: prefixes(p.Is.Addresses),
			Forward: forwards(p.Is), NAT: p.Is.NAT, Services: p.Is.DHCP,
		}
		if len(p.Is.Interfaces) > 0 {
			// The bridge replaces the host's NIC as its own connection, so the
			// rules block nothing on it.
			one = firewall.Network{Owner: n.UID, Bridge: p.Is.Bridge, Forward: true, HostAccess: true, Addresses: ofHost(p.Is, o)}
		}
		r.Networks = append(r.Networks, one)
		for _, k := range slices.Sorted(maps.Keys(p.Guests)) {
			g := p.Guests[k]
			machine := machines[ownerOf(k).Machine]
			one := firewall.Guest{Owner: orUnknown(machine.UID, g.MAC), Bridge: p.Is.Bridge, MAC: g.MAC, Ports: portsOf(k, g, machine), Addresses: usable(p.Guests, k, machine)}
			one.Router = machine.NICs[ownerOf(k).NIC].Router
			if g.Released == nil {
				r.Guests = append(r.Guests, one)
			}
		}
	}
	return r
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
func publish(r *firewall.Rules, d Desired, planned []Planned, o Observed) {
	at, before := map[string]int{}, map[string]bool{}
	for i, n := range d.Networks {
		at[n.Name] = i
		for _, port := range n.Status.Published {
			before[port] = true
		}
	}
	guests := slices.SortedFunc(slices.Values(d.Machines), func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	taken := map[string]string{}
	for _, g := range guests {
		if g.Dying || len(g.Publish) == 0 {
			continue
		}
		i, entry, ok := publishedBy(g, at, planned)
		if !ok {
			continue
		}
		for _, p := range g.Publish {
			port := fmt.Sprintf("%s/%d", p.Protocol, p.HostPort)
			switch {
			case taken[port] != "":
				planned[i].Notes = append(planned[i].Notes, fmt.Sprintf("%s port %d of the host is already published by machine/%s, so machine/%s is not reached by it", p.Protocol, p.HostPort, taken[port], g.Name))
				continue
			case o.Listening[port] && !before[port]:
				planned[i].Notes = append(planned[i].Notes, portInUse(g.Name, p))
				continue
			}
			taken[port] = g.Name
			planned[i].Published = append(planned[i].Published, port)
			for _, a := range addressesOf(entry) {
				r.Publish = append(r.Publish, firewall.Publish{
					Owner: g.UID, Bridge: planned[i].Is.Bridge, Protocol: p.Protocol, HostPort: uint16(p.HostPort),
					Address: a, Port: uint16(p.Port), Sources: prefixes(p.Sources),
				})
			}
		}
	}
	for i := range planned {
		slices.Sort(planned[i].Published)
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

const protocolRA = 9 // RTPROT_RA: a router advertisement added the route

// parameters returns the kernel parameters. The routers' come first: when IPv6
// forwarding starts, the kernel drops the advertised routes unless accept_ra is
// 2.
func parameters(d Desired, planned []Planned, o Observed, policy Policy, published bool) (routers, settings []sysctl.Setting) {
	forward4, forward6 := published, false
	for i := range d.Networks {
		p := planned[i]
		if !p.On {
			continue
		}
		four, six := false, false
		for _, a := range prefixes(p.Is.Addresses) {
			four, six = four || a.Addr().Is4(), six || a.Addr().Is6()
		}
		forward4 = forward4 || forwards(p.Is) && four
		forward6 = forward6 || (forwards(p.Is) || len(p.Published) > 0) && six
		_, there := o.Host.Link(p.Is.Bridge)
		bridge := func(version, name, value string) {
			if there && (version == "ipv4" || o.IPv6) {
				settings = append(settings, sysctl.Setting{Name: sysctl.Name("net", version, "conf", p.Is.Bridge, name), Value: value})
			}
		}
		if len(p.Is.Interfaces) == 0 {
			bridge("ipv6", "accept_ra", "0") // guests must not advertise routes to the host
		}
		if p.Is.ProxyARP {
			bridge("ipv4", "proxy_arp", "1")
			if six { // for neighbours proxied manually: the kernel answers only for those
				bridge("ipv6", "proxy_ndp", "1")
			}
		}
		if len(p.Published) > 0 {
			bridge("ipv4", "route_localnet", "1") // see firewall.table
		}
	}
	routers, forwarding := router(o, policy, forward4, forward6)
	return routers, append(settings, forwarding...)
}

// router returns the parameters that make the host a router, by IP version.
func router(o Observed, policy Policy, four, six bool) (routers, settings []sysctl.Setting) {
	if four {
		settings = append(settings, sysctl.Setting{Name: forwarding4, Value: "1", Users: forwarders(o.Host, policy, true)})
	}
	if six && o.IPv6 {
		settings = append(settings, sysctl.Setting{Name: forwarding6, Value: "1", Users: forwarders(o.Host, policy, false)})
		for _, link := range advertised(o.Host) {
			routers = append(routers, sysctl.Setting{Name: acceptRA(link), Value: "2", Users: forwarders(o.Host, policy, false)})
		}
	}
	return routers, settings
}

// advertised returns the links whose default route came with an advertisement.
func advertised(o hostnet.Observed) []string {
	var links []string
	for _, r := range o.Routes {
		if r.Default() && r.Destination.Addr().Is6() && r.Protocol == protocolRA && !slices.Contains(links, r.Link) {
			links = append(links, r.Link)
		}
	}
	slices.Sort(links)
	return links
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
