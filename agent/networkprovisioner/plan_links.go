package networkprovisioner

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
)

// carry sets p.NICSettings. It holds the recorded settings of the host's NICs,
// and the current settings of NICs that will come under the bridge or leave one.
func (m *maker) carry(n Network, p *Planned) {
	o := m.o.Host
	p.NICSettings = map[string]hostnet.NICSettings{}
	for nic, raw := range n.Status.NICSettings {
		var had hostnet.NICSettings
		if json.Unmarshal(raw, &had) == nil {
			p.NICSettings[nic] = had
		}
	}
	recorded := maps.Clone(p.NICSettings)
	for nic, had := range recorded {
		l, _ := o.Link(nic)
		master, _ := o.Link(l.Master)
		switch {
		case !hostnet.Ours(m.policy.Namespace, master):
		case !p.On || l.Master != p.Is.Bridge || !slices.Contains(p.Is.Interfaces, nic):
			p.NICSettings[nic] = hostnet.Leaving(had, without(recorded, nic), o, l.Master, m.declared(l.Master, *p))
		case slices.Contains(m.o.Own.Persistent, l.Master):
			// By now the bridge has its own leases.
			p.NICSettings[nic] = withoutLeases(had)
		}
	}
	if !p.On {
		return
	}
	for _, nic := range p.Is.Interfaces {
		l, there := o.Link(nic)
		if _, recorded := p.NICSettings[nic]; !there || l.Master != "" || recorded && !bears(o, nic) {
			continue
		}
		if had, err := hostnet.Carry(o, nic); err == nil { // the plan reports the error
			p.NICSettings[nic] = had
		}
	}
}

// without returns the settings of all NICs but one.
func without(all map[string]hostnet.NICSettings, nic string) (others []hostnet.NICSettings) {
	for name, had := range all {
		if name != nic {
			others = append(others, had)
		}
	}
	return others
}

// declared returns the addresses that hostler gives a network's bridge or has given
// it.
func (m *maker) declared(bridge string, p Planned) []netip.Prefix {
	all := prefixes(p.Is.Addresses)
	for _, n := range m.Networks {
		if was := n.Status.Applied; was != nil && was.Bridge == bridge {
			all = append(all, prefixes(was.Addresses)...)
		}
	}
	return all
}

// claim plans to stamp a bridge of the network that our boot files created
// without a stamp. Some hosts' boot software cannot set the stamp.
func (m *maker) claim(n Network) {
	name := n.Record.Network.Bridge
	if n.Status.Applied != nil {
		name = n.Status.Applied.Bridge
	}
	links := m.o.Host.Links
	i := slices.IndexFunc(links, func(l hostnet.Link) bool { return l.Name == name && l.Kind == "bridge" && l.Alias == "" })
	if i < 0 || !slices.Contains(m.o.Own.Persistent, name) {
		return
	}
	links[i].Alias = hostnet.Stamp(m.policy.Namespace, n.UID)
	m.claims[n.UID] = hostnet.Step{Op: hostnet.ClaimBridge, UID: n.UID, Link: name, Stamp: links[i].Alias, MAC: links[i].MAC}
}

// want adds the network's bridge and the host's NICs under it to m.wanted.
func (m *maker) want(n Network, p Planned) {
	w := &m.wanted
	maps.Copy(w.NICSettings, p.NICSettings)
	w.NICs = append(w.NICs, n.Record.Network.Interfaces...)
	if n.Status.Applied != nil {
		w.NICs = append(w.NICs, n.Status.Applied.Interfaces...)
	}
	if !p.On {
		return
	}
	b := hostnet.Bridge{
		Name: p.Is.Bridge, UID: n.UID, Addresses: prefixes(p.Is.Addresses), MTU: mtuOf(n, p.Is), Ports: p.Is.Interfaces,
		Guests: m.guestPorts(p),
	}
	if len(b.Ports) > 0 {
		b.Former = m.declared(b.Name, p)
	}
	w.Bridges = append(w.Bridges, b)
}

// links plans the steps on links, adds them to their networks and returns all
// of them.
func (m *maker) links() []hostnet.Step {
	p, o := &m.p, m.o
	steps, problems := hostnet.Plan(m.wanted, o.Host)
	for _, problem := range problems {
		if i, ok := m.at[problem.UID]; ok {
			p.Networks[i].Errs = append(p.Networks[i].Errs, problem.Err)
		}
	}
	for _, s := range steps {
		i, known := m.at[s.UID]
		if s.UID == "" {
			i, known = m.returning, m.returning >= 0
		}
		switch {
		case s.Op != hostnet.RemoveBridge:
			if known {
				p.Networks[i].Links = append(p.Networks[i].Links, s)
			}
		case known && len(s.Cuts) == 0, known && m.Networks[i].Life != state.Alive && allows(m.Networks[i]):
			p.Networks[i].Links = append(p.Networks[i].Links, s)
		case known && m.Networks[i].Life != state.Alive:
			p.Networks[i].Waiting = fmt.Sprintf("waiting until %s is taken off bridge %s, which hostler did not attach", strings.Join(s.Cuts, ", "), s.Link)
		case known:
			// The network has another bridge now. Its guests move there one
			// after another, and a later plan removes the old bridge after the
			// last guest.
		case idleBridge(o, s.Link) && (m.policy.Sweep || s.UID == "half-made"):
			p.Strays = append(p.Strays, s)
		default:
			p.Unknown = append(p.Unknown, s.Link)
		}
	}
	p.Strays = append(p.Strays, m.abandoned()...)
	for _, l := range o.Host.Links {
		if l.Kind == "bridge" && l.Alias == "" && !hostnet.Ours(m.policy.Namespace, l) && slices.Contains(o.Own.Persistent, l.Name) { // unclaimed
			p.Unknown = append(p.Unknown, l.Name)
		}
	}
	if o.Tables != nil && len(p.Rules.Networks) > 0 {
		for _, f := range o.Tables.Findings(p.Rules) {
			m.findings[f.Owner] = append(m.findings[f.Owner], f)
		}
	}
	return steps
}

// mtuOf returns the MTU to set on the bridge. 0 means that the kernel chooses.
// The kernel keeps an MTU that was set before, so mtuOf returns the default if
// a declaration no longer sets one.
func mtuOf(n Network, is spec.Network) int {
	if was := n.Status.Applied; is.MTU == 0 && was != nil && was.MTU != 0 && len(is.Interfaces) == 0 {
		return hostnet.DefaultMTU
	}
	return is.MTU
}

// guestPorts returns the host's ends of the NICs that have an entry on the
// network and that the hypervisor connects to the network's bridge. It leaves out a NIC
// that is under the bridge of another network with an entry of it: the NIC has moved
// there, and the machine's status shows that only when the machine is ready.
func (m *maker) guestPorts(p Planned) []string {
	var ports []string
	for k, entry := range p.Guests {
		owner := ownerOf(k)
		port, ok := m.machine(owner.Machine).Status.Ports[owner.NIC]
		if !ok || entry.Released != nil || port.Bridge != p.Is.Bridge {
			continue
		}
		at, _ := m.o.Host.Link(port.Device)
		moved := slices.ContainsFunc(m.p.Networks, func(other Planned) bool {
			now, has := other.Guests[k]
			return has && now.Released == nil && other.Is.Bridge != p.Is.Bridge && other.Is.Bridge == at.Master
		})
		if !moved {
			ports = append(ports, port.Device)
		}
	}
	slices.Sort(ports)
	return ports
}

// forget deletes the recorded settings of NICs that have left the bridge and
// have all their settings back.
func forget(p *Planned, steps []hostnet.Step) {
	for nic := range p.NICSettings {
		busy := slices.ContainsFunc(steps, func(s hostnet.Step) bool { return s.Link == nic || s.UID == "" })
		if !busy && (!p.On || !slices.Contains(p.Is.Interfaces, nic)) {
			delete(p.NICSettings, nic)
		}
	}
}

// returning returns a NIC to which the network gives back its settings. The
// second result is false if there is none.
func returning(p Planned) (string, bool) {
	for nic := range p.NICSettings {
		if !p.On || !slices.Contains(p.Is.Interfaces, nic) {
			return nic, true
		}
	}
	return "", false
}

// guarded reports whether one of the network's steps can break the host's own
// connection.
func (p Planned) guarded() bool {
	return slices.ContainsFunc(p.Links, func(s hostnet.Step) bool { return s.Guarded })
}

// nicsUnder returns the host's NICs under a bridge. It leaves out guests'
// ports, which are veth pairs and taps.
func nicsUnder(o hostnet.Observed, bridge string) []string {
	var nics []string
	for _, l := range o.Links {
		if l.Master == bridge && (l.Kind == "" || l.Kind == "bond" || l.Kind == "vlan") {
			nics = append(nics, l.Name)
		}
	}
	return nics
}

// hostsOwn reports whether a bridge carries the host's own network. Such a
// bridge has a host NIC under it, has a default route or a lease, or survives a
// reboot. hostsOwn needs no record and works while the NIC is unplugged.
func hostsOwn(o Observed, bridge string) bool {
	return len(nicsUnder(o.Host, bridge)) > 0 || slices.Contains(o.Own.Persistent, bridge) ||
		slices.ContainsFunc(o.Host.RoutesOf(bridge), hostnet.Route.Default) ||
		slices.ContainsFunc(o.Host.AddressesOf(bridge), leasedAddress)
}

// idleBridge reports whether a bridge is unused. It uses the observed ports,
// because the agent does not carry out steps that would remove a NIC from an
// undeclared bridge.
func idleBridge(o Observed, bridge string) bool {
	return len(o.Host.Ports(bridge)) == 0 && !hostsOwn(o, bridge)
}
