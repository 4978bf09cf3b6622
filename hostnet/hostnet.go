// Package hostnet reads and changes the host's links, bridges, addresses and
// routes over netlink. Observe reads each table in one dump. Plan decides,
// without changing anything. Apply carries out one step. Bridges that hostnet
// makes bear a stamp in their alias; hostnet never changes a bridge without a
// stamp.
package hostnet

import (
	"net/netip"
	"slices"
)

// Observed is the state of the host's network as read from the kernel.
type Observed struct {
	Links      []Link      `json:"links"`
	Addresses  []Address   `json:"addresses"`
	Routes     []Route     `json:"routes"`
	Neighbours []Neighbour `json:"neighbours,omitempty"` // permanent entries only
}

// Link is a network device.
type Link struct {
	Name string `json:"name"`
	// Index is the kernel's number of the device. The kernel never reuses a
	// number while the host runs.
	Index int `json:"index"`
	// Kind is the kernel's name for the device type, e.g. bridge, veth, bond,
	// vlan or tun; empty for hardware.
	Kind string `json:"kind,omitempty"`
	// MAC has the form 02:00:5e:10:00:01; it is empty if the link has no
	// address.
	MAC      string `json:"mac,omitempty"`
	MTU      int    `json:"mtu"`
	Up       bool   `json:"up"`
	Carrier  bool   `json:"carrier"`
	Loopback bool   `json:"loopback,omitempty"`
	Wireless bool   `json:"wireless,omitempty"`
	// Master is the bridge or bond that the link belongs to.
	Master     string `json:"master,omitempty"`
	MasterKind string `json:"master-kind,omitempty"`
	// Parent is the underlying link of a vlan, macvlan or ipvlan.
	Parent string `json:"parent,omitempty"`
	// Pair is the other end of a veth pair, if it is in the host's network
	// namespace too.
	Pair  string `json:"pair,omitempty"`
	Alias string `json:"alias,omitempty"`
	Group uint32 `json:"group,omitempty"`
	// ReversePath is IPv4's rp_filter of the link: 0 off, 1 strict, 2 loose.
	ReversePath uint32 `json:"reverse-path,omitempty"`
	// IPv6 is nil if the link has no IPv6.
	IPv6 *IPv6 `json:"ipv6,omitempty"`
	STP  bool  `json:"stp,omitempty"` // of a bridge
}

// IPv6 holds the kernel parameters of a link that decide which addresses and routes
// it takes from router advertisements.
type IPv6 struct {
	AcceptRA      int32 `json:"accept-ra"`
	Autoconf      int32 `json:"autoconf"`
	TempAddresses int32 `json:"temp-addresses"`
}

// forever is the lifetime of an address that does not expire, e.g. a static
// address.
const forever = ^uint32(0)

// Address is an IP address of a link.
type Address struct {
	Link string `json:"link,omitempty"`
	// Prefix is the address itself with the prefix length of its network.
	Prefix netip.Prefix `json:"prefix"`
	// Peer is the remote end of a point-to-point address. If it is valid, the
	// prefix length belongs to the peer.
	Peer      netip.Addr `json:"peer,omitzero"`
	Broadcast netip.Addr `json:"broadcast,omitzero"`
	Scope     uint8      `json:"scope,omitempty"`
	// NoPrefixRoute means that the kernel adds no route for the network.
	NoPrefixRoute bool `json:"no-prefix-route,omitempty"`
	// Valid and Preferred are lifetimes in seconds; 0 and forever both mean that
	// the address does not expire.
	Valid     uint32 `json:"valid,omitempty"`
	Preferred uint32 `json:"preferred,omitempty"`
}

// Permanent reports whether the address never expires.
func (a Address) Permanent() bool { return a.Valid == 0 || a.Valid == forever }

func (a Address) same(b Address) bool { return a.Prefix == b.Prefix && a.Peer == b.Peer }

// Route is a unicast route to a network through a link.
type Route struct {
	Link string `json:"link,omitempty"`
	// Destination is 0.0.0.0/0 or ::/0 for the default route.
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
	Source      netip.Addr   `json:"source,omitzero"`
	Metric      uint32       `json:"metric,omitempty"`
	Table       uint32       `json:"table"`
	Protocol    uint8        `json:"protocol"`
	Scope       uint8        `json:"scope,omitempty"`
	Type        uint8        `json:"type"`
	TOS         uint8        `json:"tos,omitempty"`
	OnLink      bool         `json:"on-link,omitempty"`
	// Preference is IPv6's router preference.
	Preference uint8 `json:"preference,omitempty"`
	// Expires is the remaining lifetime in seconds of an IPv6 route, e.g. from a
	// router advertisement; 0 means that the route does not expire.
	Expires uint32 `json:"expires,omitempty"`
	// Properties holds the kernel's RTA_METRICS unparsed: MTU, window and so on.
	Properties []byte `json:"properties,omitempty"`
	// Complex names the feature that prevents hostnet from moving the route to
	// another link, e.g. "several next hops"; it is empty for a plain route.
	Complex string `json:"complex,omitempty"`
}

// Default reports whether this is a default route.
func (r Route) Default() bool { return r.Destination.Bits() == 0 }

func (r Route) same(b Route) bool {
	return r.Destination == b.Destination && r.Gateway == b.Gateway && r.Metric == b.Metric &&
		r.Table == b.Table && r.TOS == b.TOS && r.Source == b.Source
}

// Neighbour is a permanent ARP or NDP entry, which gives the hardware address
// of an IP address.
type Neighbour struct {
	Link    string     `json:"link,omitempty"`
	Address netip.Addr `json:"address"`
	MAC     string     `json:"mac"`
}

// Link returns the link with the name, or false.
func (o Observed) Link(name string) (Link, bool) {
	i := slices.IndexFunc(o.Links, func(l Link) bool { return l.Name == name })
	if i < 0 {
		return Link{}, false
	}
	return o.Links[i], true
}

// Free reports whether the link is there and is no port of a bridge.
func (o Observed) Free(name string) bool {
	l, there := o.Link(name)
	return there && l.Master == ""
}

// AddressesOf returns the addresses of a link.
func (o Observed) AddressesOf(link string) []Address {
	return filter(o.Addresses, func(a Address) bool { return a.Link == link })
}

// RoutesOf returns the routes through a link.
func (o Observed) RoutesOf(link string) []Route {
	return filter(o.Routes, func(r Route) bool { return r.Link == link })
}

// Ports returns the names of the links under a bridge or bond, sorted.
func (o Observed) Ports(master string) []string {
	var names []string
	for _, l := range o.Links {
		if l.Master == master {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names
}

// PrimaryNIC returns the link of the default route with the lowest metric in
// the main table, IPv4 before IPv6. It returns "" if there is no default route.
func (o Observed) PrimaryNIC() string {
	best := Route{}
	for _, r := range o.Routes {
		if !r.Default() || r.Table != tableMain || r.Link == "" {
			continue
		}
		four, bestFour := r.Destination.Addr().Is4(), best.Destination.Addr().Is4()
		if best.Link == "" || four && !bestFour || four == bestFour && r.Metric < best.Metric {
			best = r
		}
	}
	return best.Link
}

func filter[T any](all []T, keep func(T) bool) []T {
	var kept []T
	for _, x := range all {
		if keep(x) {
			kept = append(kept, x)
		}
	}
	return kept
}
