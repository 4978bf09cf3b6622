package firewall

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The families of the tables. Only the bridge family sees frames between guests
// on one bridge.
const (
	inet   = "inet"
	bridge = "bridge"
)

// ofGuests is the owner of the rules that apply to all guests. Each such rule
// has a set with an element per guest. One rule per guest would slow down
// frames and listings.
const ofGuests = "guests"

// Bit offsets and values for matches that not all versions of nft can express.
const (
	// The client hardware address of DHCP follows the 8 bytes of UDP and 28 of
	// DHCP (RFC 2131, 2).
	chaddr = "@th,288,48"
	// The target address of a neighbour solicitation or advertisement follows
	// the first 8 bytes (RFC 4861, 4.3 and 4.4).
	target = "@th,64,128"
	// 0x3fa is the first 10 bits of fe80::/10.
	targetIsLocal, targetIsGlobal = "@th,64,10 0x3fa", "@th,64,10 != 0x3fa"
	// ff:fe stands in the middle of a link-local address derived from a MAC
	// address (RFC 4291, A). Only such an address reveals its owner; a random
	// address does not.
	sourceOfMAC, targetOfMAC = "@nh,152,16 0xfffe", "@th,152,16 0xfffe"
	// The last 64 bits of the address.
	sourceID, targetID = "@nh,128,64", "@th,128,64"
	// A later fragment may contain the client hardware address without the port.
	fragment = "ip frag-off & 0x3fff != 0"
)

// neighbours match the messages that claim an address. These are
// advertisements, and solicitations for duplicate address detection (RFC 4862,
// 5.4).
var neighbours = []string{"icmpv6 type nd-neighbor-advert", "ip6 saddr :: icmpv6 type nd-neighbor-solicit"}

// ports drops three kinds of frames from guests' ports. First, frames whose MAC
// or IP address is not the guest's own, in the headers, in neighbour messages
// or in DHCP requests. Second, router advertisements, redirects and DHCP
// answers, on networks that have their own router or DHCP server. Third, frames
// that are neither IP nor ARP, from guests with addresses. For a guest that is
// a router, it checks only the MAC and link-local addresses. On a network over
// the host's NIC, a guest with IPv4 addresses alone may use IPv6 addresses of
// an advertised prefix (SLAAC), but no address of another guest or of the host.
func ports(c *chain, r Rules) {
	var all, asking, fixed, noRouter, noServer, macs, clients, locals, localTargets, four, slaac, ids, six, targets elements
	networks := map[string]Network{}
	for _, n := range r.Networks {
		networks[n.Bridge] = n
	}
	for _, g := range r.Guests {
		n := networks[g.Bridge]
		for _, port := range g.Ports {
			local := linkLocal(g.MAC)
			all.add(port)
			macs.add(port, g.MAC)
			locals.add(port, local.String())
			localTargets.add(port, number(local))
			if g.Router {
				continue
			}
			asking.add(port)
			clients.add(port, "0x"+strings.ReplaceAll(g.MAC, ":", ""))
			if len(g.Addresses) > 0 {
				fixed.add(port)
			}
			if len(g.Addresses)+len(n.Subnets) > 0 || n.HostAccess {
				noRouter.add(port)
			}
			if n.Services || n.HostAccess {
				noServer.add(port)
			}
			if g.autoconfigured(n) {
				slaac.add(port)
				ids.add(port, number(local)[:2]+number(local)[18:])
			}
			for _, a := range g.Addresses {
				if a.Is4() {
					four.add(port, a.String())
					continue
				}
				six.add(port, a.String())
				targets.add(port, number(a))
			}
		}
	}
	if len(all) == 0 {
		return
	}
	add := func(format string, args ...any) { c.add(ofGuests, format, args...) }
	add(`iifname != %s accept`, all.set())
	add(`%s drop`, macs.without("ether saddr"))
	add(`%s drop`, macs.without("arp saddr ether"))
	add(`udp dport 67 %s drop`, fragment)
	if len(asking) > 0 {
		add(`iifname %s udp dport 67 %s drop`, asking.set(), clients.without(chaddr))
	}
	add(`ip6 saddr fe80::/10 %s %s drop`, sourceOfMAC, locals.without("ip6 saddr"))
	for _, claim := range neighbours {
		add(`%s %s %s %s drop`, claim, targetIsLocal, targetOfMAC, localTargets.without(target))
	}
	if len(noRouter) > 0 {
		add(`iifname %s icmpv6 type { nd-router-advert, nd-redirect } drop`, noRouter.set())
	}
	if len(noServer) > 0 {
		add(`iifname %s udp dport { 68, 546 } drop`, noServer.set())
	}
	if len(fixed) == 0 {
		return
	}
	add(`iifname != %s accept`, fixed.set())
	add(`ether type != { ip, ip6, arp } drop`)
	add(`arp saddr ip != 0.0.0.0 %s drop`, four.without("arp saddr ip"))
	add(`ip saddr != 0.0.0.0 %s drop`, four.without("ip saddr"))
	if len(slaac) > 0 {
		// An address of an advertised prefix is not known beforehand, unless it is
		// derived from a MAC address.
		add(`iifname %s ip6 saddr != { ::, fe80::/10 } %s %s drop`, slaac.set(), sourceOfMAC, ids.without(sourceID))
		for _, claim := range neighbours {
			add(`iifname %s %s %s %s %s drop`, slaac.set(), claim, targetIsGlobal, targetOfMAC, ids.without(targetID))
		}
		for _, n := range sorted(r.Networks) {
			taken(c, n, r.Guests)
		}
		add(`iifname %s accept`, slaac.set())
	}
	add(`ip6 saddr != { ::, fe80::/10 } %s drop`, six.without("ip6 saddr"))
	for _, claim := range neighbours {
		add(`%s %s %s drop`, claim, targetIsGlobal, targets.without(target))
	}
}

// autoconfigured reports whether the guest may use IPv6 addresses of an
// advertised prefix on the network.
func (g Guest) autoconfigured(n Network) bool {
	return n.HostAccess && !g.Router && len(g.Addresses) > 0 && !slices.ContainsFunc(g.Addresses, netip.Addr.Is6)
}

// taken drops frames with which an autoconfigured guest would use or claim an
// IPv6 address that belongs to the host or to another guest of the bridge. A
// machine may use each of its addresses on each of its interfaces.
func taken(c *chain, n Network, guests []Guest) {
	var ports, sources, numbers, own, ownNumbers elements
	byOwner := map[string][]netip.Addr{}
	add := func(a netip.Addr) {
		sources, numbers = append(sources, a.String()), append(numbers, number(a))
	}
	for _, a := range n.Addresses {
		if a.Is6() {
			add(a)
		}
	}
	for _, g := range guests {
		for _, a := range g.Addresses {
			if g.Bridge == n.Bridge && a.Is6() {
				add(a)
				byOwner[g.Owner] = append(byOwner[g.Owner], a)
			}
		}
	}
	for _, g := range guests {
		if g.Bridge != n.Bridge || !g.autoconfigured(n) {
			continue
		}
		for _, port := range g.Ports {
			ports.add(port)
			for _, a := range byOwner[g.Owner] {
				own.add(port, a.String())
				ownNumbers.add(port, number(a))
			}
		}
	}
	if len(ports) == 0 || len(sources) == 0 {
		return
	}
	c.add(ofGuests, `iifname %s ip6 saddr %s %s drop`, ports.set(), sources.set(), own.without("ip6 saddr"))
	for _, claim := range neighbours {
		c.add(ofGuests, `iifname %s %s %s %s %s drop`, ports.set(), claim, target, numbers.set(), ownNumbers.without(target))
	}
}

// pairs drops packets that enter from a bridge with a guest's IP address but
// not with this guest's MAC address. It also covers other devices on the
// bridge.
func pairs(c *chain, guests []Guest) {
	for _, ip := range []string{"ip", "ip6"} {
		var taken, own elements
		for _, g := range guests {
			for _, a := range g.Addresses {
				if v, _ := version(a); v == ip {
					taken.add(g.Bridge, a.String())
					own.add(g.Bridge, a.String(), g.MAC)
				}
			}
		}
		if len(own) > 0 {
			c.add(ofGuests, `iifname . %s saddr %s iifname . %s saddr . ether saddr != %s drop`, ip, taken.set(), ip, own.set())
		}
	}
}

// elements are set elements that begin with a device name.
type elements []string

func (e *elements) add(device string, fields ...string) {
	*e = append(*e, strings.Join(append([]string{fmt.Sprintf("%q", device)}, fields...), " . "))
}

// set renders the elements sorted and without duplicates.
func (e elements) set() string {
	all := slices.Clone(e)
	slices.Sort(all)
	return "{ " + strings.Join(slices.Compact(all), ", ") + " }"
}

// without returns the match for frames whose pair of port and field is not
// among the elements, or "" if there are no elements.
func (e elements) without(field string) string {
	if len(e) == 0 {
		return ""
	}
	return fmt.Sprintf("iifname . %s != %s", field, e.set())
}

// linkLocal returns the link-local address derived from a MAC address (RFC
// 4291, A).
func linkLocal(mac string) netip.Addr {
	var b [6]byte
	_, _ = fmt.Sscanf(mac, "%02x:%02x:%02x:%02x:%02x:%02x", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5])
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: b[0] ^ 2, b[1], b[2], 0xff, 0xfe, b[3], b[4], b[5]})
}

// number formats an address as a number, the form in which nft compares raw
// bytes.
func number(a netip.Addr) string {
	b := a.As16()
	return fmt.Sprintf("0x%x", b[:])
}
