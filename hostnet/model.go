package hostnet

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"
)

func (o Observed) clone() Observed {
	return Observed{
		Links: slices.Clone(o.Links), Addresses: slices.Clone(o.Addresses),
		Routes: slices.Clone(o.Routes), Neighbours: slices.Clone(o.Neighbours),
	}
}

// change applies the effects of the step to the model, as far as plans depend
// on these effects.
func (o *Observed) change(s Step) {
	edit := func(name string, f func(l *Link)) {
		if i := slices.IndexFunc(o.Links, func(l Link) bool { return l.Name == name }); i >= 0 {
			f(&o.Links[i])
		}
	}
	switch s.Op {
	case MakeBridge:
		l := Link{Name: s.Link, Kind: "bridge", Alias: s.Stamp, MAC: s.MAC, MTU: s.MTU}
		l.MTU = cmp.Or(l.MTU, DefaultMTU)
		o.Links = append(o.Links, l)
	case StampBridge, ClaimBridge:
		edit(s.Link, func(l *Link) { l.Alias, l.Group = s.Stamp, 0 })
	case TuneBridge:
		edit(s.Link, func(l *Link) { l.STP = false })
	case RemoveBridge:
		o.remove(s.Link)
	case RemovePair:
		l, _ := o.Link(s.Link)
		o.remove(s.Link)
		o.remove(l.Pair)
	case SetMAC:
		edit(s.Link, func(l *Link) { l.MAC = s.MAC })
	case SetMTU:
		edit(s.Link, func(l *Link) { l.MTU = s.MTU })
	case SetReversePath:
		edit(s.Link, func(l *Link) { l.ReversePath = s.Value })
	case SetIPv6:
		edit(s.Link, func(l *Link) { l.IPv6 = s.IPv6 })
	case SetUp:
		edit(s.Link, func(l *Link) { l.Up = true })
	case Enslave, Rejoin:
		edit(s.Link, func(l *Link) { l.Master, l.MasterKind = s.Bridge, "bridge" })
		if nic, ok := o.Link(s.Link); ok {
			edit(s.Bridge, func(l *Link) { l.MTU = min(l.MTU, nic.MTU) })
		}
	case Release:
		edit(s.Link, func(l *Link) { l.Master, l.MasterKind = "", "" })
	case AddAddress:
		a := *s.Address
		a.Link = s.Link
		if !slices.ContainsFunc(o.AddressesOf(s.Link), a.same) {
			o.Addresses = append(o.Addresses, a)
		}
		if r, ok := connected(a); ok && !slices.ContainsFunc(o.RoutesOf(s.Link), r.same) {
			o.Routes = append(o.Routes, r)
		}
	case DeleteAddress:
		o.Addresses = filter(o.Addresses, func(a Address) bool { return a.Link != s.Link || !a.same(*s.Address) })
		network := s.Address.Prefix.Masked()
		if !slices.ContainsFunc(o.AddressesOf(s.Link), func(a Address) bool { return a.Prefix.Masked() == network }) {
			o.Routes = filter(o.Routes, func(r Route) bool {
				return r.Link != s.Link || r.Protocol != protoKernel || r.Destination != network
			})
		}
	case AddRoute:
		r := *s.Route
		r.Link = s.Link
		o.Routes = append(o.Routes, r)
	case DeleteRoute:
		o.Routes = filter(o.Routes, func(r Route) bool { return r.Link != s.Link || !r.same(*s.Route) })
	case AddNeighbour:
		n := *s.Neighbour
		n.Link = s.Link
		o.Neighbours = append(o.Neighbours, n)
	}
}

func (o *Observed) remove(link string) {
	o.Links = filter(o.Links, func(l Link) bool { return l.Name != link })
	for i := range o.Links {
		if o.Links[i].Master == link {
			o.Links[i].Master, o.Links[i].MasterKind = "", ""
		}
	}
	o.Addresses = filter(o.Addresses, func(a Address) bool { return a.Link != link })
	o.Routes = filter(o.Routes, func(r Route) bool { return r.Link != link })
	o.Neighbours = filter(o.Neighbours, func(n Neighbour) bool { return n.Link != link })
}

// connected returns the route that the kernel adds for an address's network, or
// false if it adds none.
func connected(a Address) (Route, bool) {
	if a.NoPrefixRoute || a.Peer.IsValid() || a.Prefix.IsSingleIP() || a.Prefix.Addr().IsLinkLocalUnicast() {
		return Route{}, false
	}
	r := Route{Link: a.Link, Destination: a.Prefix.Masked(), Table: tableMain, Protocol: protoKernel, Type: unix.RTN_UNICAST}
	if a.Prefix.Addr().Is4() {
		r.Source, r.Scope = a.Prefix.Addr(), unix.RT_SCOPE_LINK
	}
	r.Metric = kernelMetric(r)
	return r, true
}
