package networkprovisioner

import (
	"encoding/json"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/ipam"
	"hostler/internal/fault"
)

// A bridge belongs to one network at a time. Another network that declares the
// same bridge gets it later or not at all.

// claimOn ranks a network's claim on a bridge. A declared network ranks above a
// dying one. Among these, the network whose stamp the bridge has ranks first,
// then the network whose applied version has the bridge.
func claimOn(bridge string, n Network, o hostnet.Observed) (claim int) {
	if n.Life == state.Alive {
		claim = 4
	}
	l, _ := o.Link(bridge)
	if _, uid, ok := hostnet.ParseStamp(l.Alias); ok && uid == n.UID {
		claim += 2
	}
	if n.Status.Applied != nil && n.Status.Applied.Bridge == bridge {
		claim++
	}
	return claim
}

// rival returns an error if another network that declares the same bridge has a
// better claim, or has an equal claim and precedes n in m.Networks.
func (m *maker) rival(n Network) error {
	bridge := n.Record.Network.Bridge
	first := true
	for _, other := range m.networksOn(bridge) {
		if other.UID == n.UID {
			first = false
			continue
		}
		if other.Life != state.Alive || other.Record.Network.Bridge != bridge {
			continue
		}
		if theirs, own := claimOn(bridge, other, m.o.Host), claimOn(bridge, n, m.o.Host); theirs > own || theirs == own && first {
			return taken(bridge, other.Name)
		}
	}
	return nil
}

func taken(bridge, other string) error {
	return fault.New(fault.Conflict, "cannot make bridge %s: network/%s uses it; choose another bridge name", bridge, other)
}

// share gives a bridge to the network with the best claim. If this is not
// network i, a dying network i hands its bridge and machines over, and a
// declared network i stays off the host.
func (m *maker) share(n Network, p *Planned, i int) {
	j, ok := m.best[p.Is.Bridge]
	switch {
	case !ok || j == i:
	case n.Life != state.Alive:
		p.On, p.Waiting, p.Heir = false, "", m.Networks[j].Name
	case p.On:
		p.On, p.Out = false, true
		p.Errs = append(p.Errs, taken(p.Is.Bridge, m.Networks[j].Name))
	}
}

// inherited returns the recorded NIC settings of a network. It adds the
// settings of NICs under a bridge that the network takes over and leaves out
// those under a bridge that it hands over.
func (m *maker) inherited(i int) map[string]json.RawMessage {
	p := m.p.Networks[i]
	all := maps.Clone(m.Networks[i].Status.NICSettings)
	if heir, hands := m.named[p.Heir]; hands {
		maps.DeleteFunc(all, func(nic string, _ json.RawMessage) bool { return wants(m.p.Networks[heir], nic) })
		return all
	}
	if best, on := m.best[p.Is.Bridge]; !on || best != i {
		return all
	}
	for _, j := range m.users[p.Is.Bridge] {
		if j == i || m.Networks[j].Life == state.Alive {
			continue
		}
		for nic, had := range m.Networks[j].Status.NICSettings {
			if _, own := all[nic]; !own && wants(p, nic) {
				if all == nil {
					all = map[string]json.RawMessage{}
				}
				all[nic] = had
			}
		}
	}
	return all
}

func wants(p Planned, nic string) bool { return p.On && slices.Contains(p.Is.Interfaces, nic) }

// deleted describes the effect of a network's deletion.
func deleted(p Planned) string {
	if p.Heir != "" {
		return "bridge " + p.Is.Bridge + ", which " + spec.KindNetwork + "/" + p.Heir + " takes over"
	}
	return "bridge " + p.Is.Bridge
}

// unfit returns the reason why the declared network cannot be on this host, or
// nil if it can.
func (m *maker) unfit(n Network) error {
	is := n.Record.Network
	if l, there := m.o.Host.Link(is.Bridge); there && !hostnet.Ours(m.policy.Namespace, l) {
		what := "a bridge that is not hostler's"
		if l.Kind != "bridge" {
			what = "a network device of this host and not a bridge"
		}
		return fault.New(fault.Conflict, "cannot make bridge %s: it is %s; choose another name for the network's bridge, or remove that device", l.Name, what)
	}
	if made(n, m.o) && n.Status.Applied != nil && slices.Equal(n.Status.Applied.Addresses, is.Addresses) {
		return nil
	}
	return m.clash(n)
}

// clash returns an error if the host reaches a subnet of the network over
// another link, or will do so after a network has given back a NIC's addresses.
// Our bridges and the network's interfaces do not count as other links.
func (m *maker) clash(n Network) error {
	is := n.Record.Network
	var routes []ipam.HostRoute
	for _, r := range m.o.Host.Routes {
		l, _ := m.o.Host.Link(r.Link)
		namespace, _, ours := hostnet.ParseStamp(l.Alias)
		if r.Link == "" || r.Link == is.Bridge || ours && namespace == m.policy.Namespace || slices.Contains(is.Interfaces, r.Link) {
			continue
		}
		if r.Destination.Addr().IsLinkLocalUnicast() || r.Destination.Addr().IsMulticast() || l.Loopback {
			continue
		}
		routes = append(routes, ipam.HostRoute{Destination: r.Destination, Link: r.Link})
	}
	if was := n.Status.Applied; was == nil || !slices.Equal(was.Addresses, is.Addresses) { // else the host has had all these addresses at once
		for _, r := range m.returnable {
			if _, there := m.o.Host.Link(r.Link); there && !slices.Contains(is.Interfaces, r.Link) {
				routes = append(routes, r)
			}
		}
	}
	return ipam.Clash(ipam.Network{Name: n.Name, Addresses: prefixes(is.Addresses)}, routes)
}

// recordedRoutes returns the routes to the subnets of recorded NICs.
func recordedRoutes(recorded map[string]json.RawMessage) (routes []ipam.HostRoute) {
	for _, nic := range slices.Sorted(maps.Keys(recorded)) {
		var had hostnet.NICSettings
		if json.Unmarshal(recorded[nic], &had) != nil {
			continue
		}
		for _, a := range had.Addresses {
			if !a.Prefix.Addr().IsLinkLocalUnicast() {
				routes = append(routes, ipam.HostRoute{Destination: a.Prefix.Masked(), Link: nic})
			}
		}
	}
	return routes
}
