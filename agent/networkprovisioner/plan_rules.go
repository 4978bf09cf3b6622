package networkprovisioner

import (
	"cmp"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/hostnet/dhcp"
	"hostler/hostnet/firewall"
)

// forwards reports whether the network's packets pass through the host. NAT
// implies forwarding.
func forwards(n spec.Network) bool { return n.Forwarding || n.NAT }

// rules adds the firewall rules of a network and of its guests, if the network
// is on the host.
func (m *maker) rules(n Network, p Planned) {
	r := &m.p.Rules
	if !p.On {
		return
	}
	one := firewall.Network{
		Owner: n.UID, Bridge: p.Is.Bridge, Subnets: prefixes(p.Is.Addresses),
		Forward: forwards(p.Is), NAT: p.Is.NAT, Services: p.Is.DHCP,
	}
	if m.bearsHost(n, p) {
		// The bridge replaces the NIC as the host's own connection, so the rules
		// must block nothing on the bridge.
		one = firewall.Network{Owner: n.UID, Bridge: p.Is.Bridge, Forward: true, HostAccess: true, Addresses: ofHost(p.Is, m.o)}
	}
	r.Networks = append(r.Networks, one)
	may := m.usableOn(n, p.Guests, m.policy.Now)
	for _, k := range slices.Sorted(maps.Keys(p.Guests)) {
		g := p.Guests[k]
		machine := m.machine(ownerOf(k).Machine)
		one := firewall.Guest{Owner: orUnknown(cmp.Or(machine.UID, g.Machine), g.MAC), Bridge: p.Is.Bridge, MAC: g.MAC, Ports: portsOf(k, g, machine), Addresses: may.use(k, g, machine)}
		one.Router = machine.NICs[ownerOf(k).NIC].Router
		if g.Released == nil || may.linger(k, g, machine) {
			r.Guests = append(r.Guests, one)
		}
	}
}

// bearsHost reports whether the bridge is, is about to become or may again become the
// host's own connection. It also returns true until a NIC has left the bridge and
// the guard no longer puts it back.
func (m *maker) bearsHost(n Network, p Planned) bool {
	was := n.Status.Applied
	if len(p.Is.Interfaces) > 0 || was == nil || was.Bridge != p.Is.Bridge {
		return len(p.Is.Interfaces) > 0
	}
	return slices.ContainsFunc(was.Interfaces, func(nic string) bool {
		l, _ := m.o.Host.Link(nic)
		return l.Master == was.Bridge || m.o.Own.Armed == object(n)
	})
}

// linkName matches the device names that the firewall accepts. Hypervisors use
// no others.
var linkName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)

// portsOf returns the possible names of the host's end of a NIC. The first is
// the name that drivers assign now. An instance from an earlier version may
// have another name, which its status shows.
func portsOf(k string, g spec.GuestAddress, machine Machine) []string {
	all := []string{containerbroker.PortOf(g.MAC)}
	if at := machine.Status.Ports[ownerOf(k).NIC].Device; linkName.MatchString(at) && at != all[0] {
		all = append(all, at)
	}
	return all
}

// ofHost returns the host's own addresses on a network's bridge. These are the
// declared addresses and the addresses that the kernel has, e.g. from the NIC or
// from a router's advertisement.
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

// orUnknown returns uid, or an owner made of the MAC address if the guest's
// machine is no longer known.
func orUnknown(uid, mac string) string {
	if uid == "" {
		return "unknown:" + mac
	}
	return uid
}

// lingers is how long a previous address or a removed NIC stays in the rules
// while other machines of the network change. It is far shorter than the
// quarantine of their addresses.
const lingers = time.Minute

// usable holds the source addresses that the rules permit the NICs of a network
// to use. These are the NIC's own addresses and, until the instance is as
// declared, its previous addresses. The previous addresses and the removed NICs
// of machines that change together leave the rules together, because the rules
// are loaded as a whole. An address that another NIC has got leaves at once.
type usable struct {
	previous map[string][]spec.GuestAddress // by the NIC's key
	changing bool                           // a machine on the network is not as declared or is being removed
	held     map[netip.Addr]bool
	now      time.Time
}

func (d Desired) usableOn(n Network, guests map[string]spec.GuestAddress, now time.Time) usable {
	u := usable{previous: map[string][]spec.GuestAddress{}, held: map[netip.Addr]bool{}, now: now}
	for k, g := range guests {
		base, _, previous := strings.Cut(k, "#")
		if previous {
			u.previous[base] = append(u.previous[base], g)
			continue
		}
		for _, a := range addressesOf(g) {
			u.held[a] = u.held[a] || g.Released == nil
		}
	}
	u.changing = slices.ContainsFunc(d.guestsOf(n), func(g Machine) bool { return g.Dying || g.made() && !g.AttachmentsMatch })
	return u
}

// linger reports whether a removed NIC stays in the rules. A NIC that moved to
// another network does not, because its port is the same there.
func (u usable) linger(k string, g spec.GuestAddress, machine Machine) bool {
	_, declared := machine.NICs[ownerOf(k).NIC]
	moved := declared && !machine.Dying
	return u.changing && u.recent(g) && !moved && g.MAC != "" && !strings.Contains(k, "#") &&
		!slices.ContainsFunc(addressesOf(g), func(a netip.Addr) bool { return u.held[a] })
}

// recent reports whether the addresses were released less than lingers ago.
func (u usable) recent(g spec.GuestAddress) bool {
	if g.Released == nil {
		return false
	}
	age := u.now.Sub(*g.Released)
	return age >= 0 && age < lingers // the clock may have been set back
}

// use returns the addresses for the NIC with the key k. An entry with a MAC
// address is another NIC's, e.g. that of an instance without a machine: while
// such an instance exists, it alone may use its addresses.
func (u usable) use(k string, g spec.GuestAddress, machine Machine) []netip.Addr {
	own := addressesOf(g)
	if !machine.made() {
		return own
	}
	var before []netip.Addr
	for _, other := range u.previous[k] {
		for _, a := range addressesOf(other) {
			if !machine.AttachmentsMatch || u.changing && other.MAC == "" && u.recent(other) && !u.held[a] {
				before = append(before, a)
			}
		}
	}
	slices.SortFunc(before, netip.Addr.Compare)
	return append(own, before...)
}

func addressesOf(g spec.GuestAddress) []netip.Addr {
	var all []netip.Addr
	for _, p := range prefixes(g.Addresses) {
		all = append(all, p.Addr())
	}
	return all
}

// dhcpOf returns the configuration of a network's DHCP server, or nil if it
// needs none. The name of a guest leads to its former addresses until the guest
// starts with the new ones.
func (m *maker) dhcpOf(i int) *dhcp.Network {
	p, o := m.p.Networks[i], m.o
	if !p.On || !p.Is.DHCP {
		return nil
	}
	own := prefixes(p.Is.Addresses)
	spans, _ := ranges(own)
	bridge, _ := o.Host.Link(p.Is.Bridge)
	n := dhcp.Network{Bridge: p.Is.Bridge, Index: bridge.Index, Addresses: own, Ranges: spans, Search: o.Resolvers.Search}
	for _, k := range slices.Sorted(maps.Keys(p.Guests)) {
		g := p.Guests[k]
		if g.Released != nil || len(g.Addresses) == 0 {
			continue
		}
		h := dhcp.Host{Name: strings.TrimRight(ownerOf(k).Machine, "-"), MAC: g.MAC, Addresses: addressesOf(g)}
		if at, former := m.formerly(m.machine(ownerOf(k).Machine), ownerOf(k).NIC, h.Addresses); at == i {
			h.Named = former
		}
		_, declared := m.machine(ownerOf(k).Machine).NICs[ownerOf(k).NIC]
		n.Hosts = addHost(n.Hosts, h, declared)
	}
	return &n
}

// addHost adds a NIC to the hosts of a DHCP server, after the other NICs of its machine. A
// former NIC shares the entry of the NIC that has its address from now on; see
// withoutFormer.
func addHost(all []dhcp.Host, h dhcp.Host, declared bool) []dhcp.Host {
	for at := len(all) - 1; at >= 0 && all[at].Name == h.Name; at-- {
		other := &all[at]
		switch shares := slices.ContainsFunc(h.Addresses, func(a netip.Addr) bool { return slices.Contains(other.Addresses, a) }); {
		case !shares:
			continue
		case declared:
			h.Former = append(other.Former, other.MAC)
			*other = h
		default:
			other.Former = append(other.Former, h.MAC)
		}
		return all
	}
	return append(all, h)
}
