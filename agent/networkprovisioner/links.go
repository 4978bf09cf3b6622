package networkprovisioner

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
)

// carry sets p.NICSettings: the recorded settings of the host's NICs, and the
// current settings of NICs that are to come under the bridge.
func carry(n Network, p *Planned, look Observed) {
	o := look.Host
	p.NICSettings = map[string]hostnet.NICSettings{}
	for nic, raw := range n.Status.NICSettings {
		var had hostnet.NICSettings
		if json.Unmarshal(raw, &had) == nil {
			p.NICSettings[nic] = had
		}
	}
	for nic, had := range p.NICSettings {
		l, _ := o.Link(nic)
		switch {
		case l.Master == "" || l.Master != p.Is.Bridge:
		case p.On && slices.Contains(p.Is.Interfaces, nic):
			if slices.Contains(look.Own.Persistent, l.Master) {
				// The bridge renews its own leases by now.
				p.NICSettings[nic] = withoutLeases(had)
			}
		default:
			// The NIC takes back the leases that the bridge has obtained.
			p.NICSettings[nic] = leasedFrom(had, o, l.Master)
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

// claim finds unstamped bridges that our boot files recreated; not every host's
// boot sets the stamp.
func claim(d Desired, o *hostnet.Observed, own OwnNetwork, namespace string) map[string]hostnet.Step {
	claims := map[string]hostnet.Step{}
	for _, n := range d.Networks {
		name := n.Record.Network.Bridge
		if n.Status.Applied != nil {
			name = n.Status.Applied.Bridge
		}
		i := slices.IndexFunc(o.Links, func(l hostnet.Link) bool { return l.Name == name && l.Kind == "bridge" && l.Alias == "" })
		if i < 0 || !slices.Contains(own.Persistent, name) {
			continue
		}
		o.Links = slices.Clone(o.Links)
		o.Links[i].Alias = hostnet.Stamp(namespace, n.UID)
		claims[n.UID] = hostnet.Step{Op: hostnet.ClaimBridge, UID: n.UID, Link: name, Stamp: o.Links[i].Alias, MAC: o.Links[i].MAC}
	}
	return claims
}

// links plans the bridges.
func links(p *Plan, d Desired, o Observed, policy Policy, claims map[string]hostnet.Step) {
	w := hostnet.Wanted{Namespace: policy.Namespace, NICSettings: map[string]hostnet.NICSettings{}}
	at := map[string]int{}
	for i, n := range d.Networks {
		at[n.UID] = i
		one := &p.Networks[i]
		n.Status.NICSettings = inherited(d, p.Networks, i)
		carry(n, one, o)
		maps.Copy(w.NICSettings, one.NICSettings)
		w.NICs = append(w.NICs, n.Record.Network.Interfaces...)
		if n.Status.Applied != nil {
			w.NICs = append(w.NICs, n.Status.Applied.Interfaces...)
		}
		if one.On {
			w.Bridges = append(w.Bridges, hostnet.Bridge{
				Name: one.Is.Bridge, UID: n.UID, Addresses: prefixes(one.Is.Addresses), MTU: mtuOf(n, one.Is), Ports: one.Is.Interfaces,
				Guests: guestPorts(d, *one),
			})
		}
	}
	steps, problems := hostnet.Plan(w, o.Host)
	for i, n := range d.Networks {
		if c, ok := claims[n.UID]; ok {
			p.Networks[i].Links = []hostnet.Step{c}
		}
	}
	for i := range p.Networks {
		if o.Own.Armed == "" { // otherwise the NIC may come under the bridge again
			forget(&p.Networks[i], steps)
		}
	}
	for _, problem := range problems {
		if i, ok := at[problem.UID]; ok {
			p.Networks[i].Errs = append(p.Networks[i].Errs, problem.Err)
		}
	}
	for _, s := range steps {
		i, known := at[s.UID]
		if s.UID == "" {
			i, known = returning(p.Networks)
		}
		switch {
		case s.Op != hostnet.RemoveBridge:
			if known {
				p.Networks[i].Links = append(p.Networks[i].Links, s)
			}
		case known && len(s.Cuts) == 0, known && d.Networks[i].Life != state.Alive && allows(d.Networks[i]):
			p.Networks[i].Links = append(p.Networks[i].Links, s)
		case known && d.Networks[i].Life != state.Alive:
			p.Networks[i].Waiting = fmt.Sprintf("waiting until %s is taken off bridge %s, which hostler did not attach", strings.Join(s.Cuts, ", "), s.Link)
		case known:
			// Guests move to the new bridge one after another; the old bridge is
			// removed after the last guest.
		case idleBridge(o, s.Link) && (policy.Sweep || s.UID == "half-made"):
			p.Strays = append(p.Strays, s)
		default:
			p.Unknown = append(p.Unknown, s.Link)
		}
	}
	for _, l := range o.Host.Links {
		if l.Kind == "bridge" && l.Alias == "" && !ours(l, policy.Namespace) && slices.Contains(o.Own.Persistent, l.Name) { // unclaimed
			p.Unknown = append(p.Unknown, l.Name)
		}
	}
	for i, n := range d.Networks {
		one := &p.Networks[i]
		hold(n, one, o.Own)
		one.Gone = n.Life != state.Alive && !one.On && !made(n, o) && !o.Serving[n.UID] && !o.Served[n.UID]
	}
}

// mtuOf returns the MTU of the bridge. 0 leaves it to the kernel, which does
// not reset an earlier MTU.
func mtuOf(n Network, is spec.Network) int {
	if was := n.Status.Applied; is.MTU == 0 && was != nil && was.MTU != 0 && len(is.Interfaces) == 0 {
		return hostnet.DefaultMTU
	}
	return is.MTU
}

// guestPorts returns the host's ends of the interfaces that have an entry on
// the network and whose instances name its bridge.
func guestPorts(d Desired, p Planned) []string {
	var ports []string
	for _, g := range d.Machines {
		for nic, port := range g.Ports {
			if entry, ok := p.Guests[key(g.Name, nic)]; ok && entry.Released == nil && port.Bridge == p.Is.Bridge {
				ports = append(ports, port.Device)
			}
		}
	}
	slices.Sort(ports)
	return ports
}

// forget deletes the recorded settings of NICs that have left the bridge and
// have everything back.
func forget(p *Planned, steps []hostnet.Step) {
	for nic := range p.NICSettings {
		busy := slices.ContainsFunc(steps, func(s hostnet.Step) bool { return s.Link == nic || s.UID == "" })
		if !busy && (!p.On || !slices.Contains(p.Is.Interfaces, nic)) {
			delete(p.NICSettings, nic)
		}
	}
}

// returning returns the network that gives a NIC its settings back.
func returning(networks []Planned) (int, bool) {
	for i, p := range networks {
		for nic := range p.NICSettings {
			if !p.On || !slices.Contains(p.Is.Interfaces, nic) {
				return i, true
			}
		}
	}
	return 0, false
}

// guarded reports whether the host's own connection depends on the network's
// steps.
func (p Planned) guarded() bool {
	return slices.ContainsFunc(p.Links, func(s hostnet.Step) bool { return s.Guarded })
}
