package hostnet

import (
	"maps"
	"slices"

	"hostler/internal/fault"
)

// port is a host NIC that is, or will be, under a bridge.
type port struct {
	name string
	had  NICSettings
	// lost means that the bridge has lost the NIC's settings, because it is absent or
	// down. Only then are settings put back that no link has: on a bridge that is up,
	// their absence is the work of the NIC's manager or of another program.
	lost bool
}

// wasDown reports whether the bridge went down and up again since it had the NIC's
// settings: it has one of the NIC's IPv4 addresses, which the kernel keeps then, and
// no IPv4 route but those that the kernel makes for addresses.
func (p *planner) wasDown(bridge Link, port port) bool {
	made := func(r Route) bool { return r.Destination.Addr().Is4() && r.Protocol != protoKernel }
	nic, _ := p.o.Link(port.name)
	return nic.Master == bridge.Name && slices.ContainsFunc(port.had.Routes, made) && !slices.ContainsFunc(p.o.RoutesOf(bridge.Name), made) &&
		slices.ContainsFunc(p.o.AddressesOf(bridge.Name), func(a Address) bool {
			return a.Prefix.Addr().Is4() && slices.ContainsFunc(port.had.Addresses, a.same)
		})
}

// refusal returns the reason why a link must not be put under a bridge, or nil.
// The error for a missing link is NotReady; all other errors are NeedsOperator.
// The link may already be under a bridge of the namespace.
func refusal(namespace string, o Observed, nic string) error {
	l, ok := o.Link(nic)
	if !ok {
		return missing(nic)
	}
	master, _ := o.Link(l.Master)
	switch {
	case l.Loopback:
		return refuse("%s is the loopback device", nic)
	case l.Wireless:
		return refuse("%s is wireless, and an access point takes frames of one address only", nic)
	case l.Kind == "bridge" || l.Kind == "openvswitch":
		return refuse("%s is a bridge itself", nic)
	case l.MasterKind == "bond" || l.MasterKind == "team":
		return refuse("%s is a member of %s; name %s instead", nic, l.Master, l.Master)
	case l.Master != "" && !Ours(namespace, master):
		return refuse("%s is already under %s, which is not hostler's", nic, l.Master)
	}
	for _, child := range o.Links {
		if child.Parent == nic && (child.Kind == "macvlan" || child.Kind == "macvtap" || child.Kind == "ipvlan") {
			return refuse("%s has %s, and the kernel allows either that or a bridge", nic, child.Name)
		}
	}
	return nil
}

func refuse(format string, args ...any) error {
	return fault.New(fault.NeedsOperator, "cannot bridge: "+format, args...)
}

func missing(nic string) error {
	return fault.New(fault.NotReady, "cannot bridge: there is no network device %s", nic)
}

// ports returns the declared host NICs that can be under the bridge. It
// includes a missing NIC that was under the bridge according to the records,
// because the NIC's addresses stay on the bridge until the NIC returns.
func (p *planner) ports(b Bridge) []port {
	var ports []port
	for _, nic := range b.Ports {
		if other := p.otherBridge(b, nic); other != "" {
			p.problem(b, fault.New(fault.Invalid, "cannot put %s under %s: %s also declares it", nic, b.Name, other))
			continue
		}
		had, recorded := p.w.NICSettings[nic]
		if err := refusal(p.w.Namespace, p.o, nic); err != nil {
			p.problem(b, err)
			if recorded && fault.Is(err, fault.NotReady) {
				ports = append(ports, port{name: nic, had: had})
			}
			continue
		}
		if !recorded {
			l, _ := p.o.Link(nic)
			if l.Master != "" {
				// The record is lost. The bridge bears the NIC's addresses and
				// routes.
				had = NICSettings{MAC: l.MAC, MTU: l.MTU, ReversePath: l.ReversePath}
			} else {
				var err error
				if had, err = Carry(p.o, nic); err != nil {
					p.problem(b, err)
					continue
				}
			}
		}
		ports = append(ports, port{name: nic, had: had})
	}
	return ports
}

// otherBridge returns the name of another bridge that wants the NIC and
// precedes b by name, or "".
func (p *planner) otherBridge(b Bridge, nic string) string {
	for _, other := range p.w.Bridges {
		if other.Name < b.Name && slices.Contains(other.Ports, nic) {
			return other.Name
		}
	}
	return ""
}

// ipv6 makes the bridge treat router advertisements as its first NIC did. Later the
// parameters belong to the NIC's manager.
func (p *planner) ipv6(b Bridge, ports []port) {
	if len(ports) == 0 || ports[0].had.IPv6 == nil {
		return
	}
	nic, there := p.o.Link(ports[0].name)
	if joins := there && nic.Master != b.Name; ports[0].lost || joins {
		// The observed values do not count, because the caller may release parameters of
		// the bridge before this step.
		p.do(Step{Op: SetIPv6, UID: b.UID, Link: b.Name, IPv6: ports[0].had.IPv6, Guarded: true})
	}
}

func (p *planner) enslave(b Bridge, port port) {
	l, ok := p.o.Link(port.name)
	if !ok {
		return
	}
	if l.Master != b.Name || port.lost {
		p.addNeighbours(b.UID, port, b.Name)
	}
	if l.Master != b.Name {
		p.reversePath(b.UID, b.Name, loose, true)
		p.do(Step{Op: LearnNeighbours, UID: b.UID, Link: b.Name, Bridge: port.name, Guarded: true})
		p.do(Step{Op: Enslave, UID: b.UID, Link: port.name, Bridge: b.Name, Guarded: true})
	}
	if !l.Up {
		p.do(Step{Op: SetUp, UID: b.UID, Link: port.name, Guarded: true})
	}
}

// move moves the routes of a NIC to another link, and removes the NIC's routes
// and addresses from all other links. It adds each route to the new link before
// deleting it from the old link, and deletes the addresses last. So packets
// have a route at any time.
func (p *planner) move(uid string, port port, to string) {
	p.moveRoutes(uid, port, to)
	for _, a := range port.had.Addresses {
		for _, bearer := range p.bearers(port, a, to) {
			p.deleteAddress(Step{UID: uid, Link: bearer, Address: &a, Heir: to, Guarded: true})
		}
	}
}

// bearers returns the links other than to that have an address of the NIC and
// must lose it.
func (p *planner) bearers(port port, a Address, to string) []string {
	return slices.DeleteFunc(p.places(port, to), func(place string) bool {
		return p.w.declares(place, a.Prefix) || place != port.name && a.Prefix.Addr().IsLinkLocalUnicast() ||
			!slices.ContainsFunc(p.o.AddressesOf(place), a.same)
	})
}

// places returns the names of the links that may bear the NIC's addresses or
// routes, except the link named by to.
func (p *planner) places(port port, to string) []string {
	places := []string{port.name}
	for _, l := range p.o.Links {
		if p.ours(l) {
			places = append(places, l.Name)
		}
	}
	return slices.DeleteFunc(places, func(name string) bool { return name == to })
}

func (p *planner) addNeighbours(uid string, port port, to string) {
	for _, n := range port.had.Neighbours {
		n.Link = to
		if !slices.Contains(p.o.Neighbours, n) {
			p.do(Step{Op: AddNeighbour, UID: uid, Link: to, Neighbour: &n, Guarded: true})
		}
	}
}

func (p *planner) moveRoutes(uid string, port port, to string) {
	places := p.places(port, to)
	// Routes to directly connected networks come first, because the gateways of
	// the other routes are in such networks.
	routes := slices.Clone(port.had.Routes)
	slices.SortStableFunc(routes, func(a, b Route) int {
		switch {
		case a.Gateway.IsValid() == b.Gateway.IsValid():
			return 0
		case b.Gateway.IsValid():
			return -1
		}
		return 1
	})
	for _, r := range routes {
		bearers := slices.DeleteFunc(slices.Clone(places), func(place string) bool { return !slices.ContainsFunc(p.o.RoutesOf(place), r.same) })
		if (port.lost || len(bearers) > 0) && !slices.ContainsFunc(p.o.RoutesOf(to), r.same) {
			p.do(Step{Op: AddRoute, UID: uid, Link: to, Route: &r, Guarded: true})
		}
		for _, bearer := range bearers {
			p.do(Step{Op: DeleteRoute, UID: uid, Link: bearer, Route: &r, Guarded: true})
		}
	}
}

// allNICSettings returns the records. For a host NIC under one of our bridges
// that has no record, it adds the addresses and routes of the bridge that are
// not declared.
func (p *planner) allNICSettings() map[string]NICSettings {
	all := map[string]NICSettings{}
	maps.Copy(all, p.w.NICSettings)
	for _, l := range p.o.Links {
		_, recorded := all[l.Name]
		if recorded || !p.oursNamed(l.Master) || !hostNIC(l) && !slices.Contains(p.w.NICs, l.Name) {
			continue
		}
		had := NICSettings{MAC: l.MAC, MTU: l.MTU, ReversePath: l.ReversePath}
		if c, err := Carry(p.o, l.Master); err == nil {
			had.Routes = c.Routes
			had.Addresses = filter(c.Addresses, func(a Address) bool { return !p.w.declares(l.Master, a.Prefix) })
		}
		all[l.Name] = had
	}
	return all
}

// hostNIC reports whether a port belongs to the host; ports of guests are veth
// pairs and taps.
func hostNIC(l Link) bool { return l.Kind == "" || l.Kind == "vlan" || l.Kind == "bond" }

// guestPort reports whether the link is of a kind that serves as the host's end
// of a guest's interface.
func guestPort(l Link) bool { return l.Kind == "veth" || l.Kind == "tun" }

// rejoin puts a guest's port back under its bridge. It skips a port without
// carrier. Nothing uses the far end of such a port, so its creator is about to
// connect or remove it.
func (p *planner) rejoin(b Bridge, name string) {
	if l, ok := p.o.Link(name); ok && guestPort(l) && l.Carrier && l.Master != b.Name {
		p.do(Step{Op: Rejoin, UID: b.UID, Link: name, Bridge: b.Name})
	}
}

// giveBack takes a NIC that no bridge wants from under our bridge, and gives
// the NIC its addresses and routes back.
func (p *planner) giveBack(nic string) {
	if slices.ContainsFunc(p.w.Bridges, func(b Bridge) bool { return slices.Contains(b.Ports, nic) }) {
		return
	}
	l, ok := p.o.Link(nic)
	if !ok {
		return
	}
	had := p.allNICSettings()[nic]
	uid := ""
	if master, ok := p.o.Link(l.Master); ok {
		if !p.ours(master) {
			p.problem(Bridge{}, fault.New(fault.Conflict, "cannot give %s its addresses back: it is under %s now", nic, l.Master))
			return
		}
		_, uid, _ = ParseStamp(master.Alias)
	}
	for _, a := range had.Addresses {
		p.addAddress(uid, nic, a, true)
	}
	from := port{name: nic, had: had, lost: true}
	p.addNeighbours(uid, from, nic)
	// The NIC stays under the bridge until the routes have moved. Packets can
	// leave through either link meanwhile. The bridge keeps its addresses until
	// the NIC has left, because a bridge without addresses accepts no packets.
	if l.Master != "" {
		p.reversePath(uid, l.Master, loose, true)
		p.do(Step{Op: LearnNeighbours, UID: uid, Link: nic, Bridge: l.Master, Guarded: true})
		p.moveRoutes(uid, from, nic)
		p.disconnect(uid, l.Master, had)
		p.do(Step{Op: Release, UID: uid, Link: nic, Bridge: l.Master, Guarded: true})
	}
	p.move(uid, from, nic)
}

// disconnect deletes the bridge's own routes to the networks that a NIC takes
// back, so that the kernel uses the NIC's routes.
func (p *planner) disconnect(uid, bridge string, had NICSettings) {
	for _, a := range had.Addresses {
		for _, r := range p.o.RoutesOf(bridge) {
			if own, ok := connected(a); ok && r.same(own) {
				r.Link = ""
				p.do(Step{Op: DeleteRoute, UID: uid, Link: bridge, Route: &r, Guarded: true})
			}
		}
	}
}

// connect restores the routes that the kernel added for the bridge's addresses
// and another program has deleted since.
func (p *planner) connect(b Bridge, wanted []Address, guarded bool) {
	for _, a := range wanted {
		r, ok := connected(a)
		if !ok || slices.ContainsFunc(p.o.RoutesOf(b.Name), func(have Route) bool { return have.Destination == r.Destination && !have.Gateway.IsValid() }) {
			continue
		}
		r.Link = ""
		p.do(Step{Op: AddRoute, UID: b.UID, Link: b.Name, Route: &r, Guarded: guarded})
	}
}

// A strict filter accepts a packet only if the route back to its source uses
// the same link. A loose filter accepts any route back. While routes move
// between links, the route back may use the other link.
const (
	strict = 1
	loose  = 2
)

func (p *planner) reversePath(uid, link string, value uint32, guarded bool) {
	if l, ok := p.o.Link(link); ok && l.ReversePath != value {
		p.do(Step{Op: SetReversePath, UID: uid, Link: link, Value: value, Guarded: guarded})
	}
}
