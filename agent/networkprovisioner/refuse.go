package networkprovisioner

import (
	"fmt"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet/bridgepolicy"
	"hostler/hostnet/ipam"
	"hostler/internal/fault"
)

// Refuse returns an error that names the changed objects that conflict with the
// host, or nil if none does. changed holds KIND/NAME of each. Refuse is a pure
// function.
func Refuse(d Desired, o Observed, policy Policy, changed map[string]bool) error {
	m := newMaker(o, policy)
	m.readDesired(d)
	var reasons []string
	for _, n := range m.Networks {
		if n.Life != state.Alive || !changed[spec.KindNetwork+"/"+n.Name] {
			continue
		}
		if err := m.clash(n); err != nil {
			reasons = append(reasons, fmt.Sprintf("network/%s: %v; use another range", n.Name, err))
		}
		if l, there := o.Host.Link(n.Record.Network.Bridge); there && l.Kind != "bridge" {
			reasons = append(reasons, fmt.Sprintf("network/%s: %s is a network device of this host and not a bridge; choose another bridge name", n.Name, l.Name))
		}
		for _, name := range n.Record.Network.Interfaces {
			if _, there := o.Host.Link(name); !there {
				reasons = append(reasons, fmt.Sprintf("network/%s: this host has no interface %s; %s", n.Name, name, bridgepolicy.Uplinks(o.Host, LocalBridges())))
			}
		}
		if err := m.resisting(n); err != nil {
			reasons = append(reasons, fmt.Sprintf("network/%s: %v", n.Name, err))
		}
	}
	if err := m.overlap(changed); err != nil {
		reasons = append(reasons, err.Error())
	}
	for _, g := range m.Machines {
		for _, p := range g.Publish {
			port := fmt.Sprintf("%s/%d", p.Protocol, p.HostPort)
			if changed[spec.KindMachine+"/"+g.Name] && o.Listening[port] && !m.published[port] {
				reasons = append(reasons, portInUse(g.Name, p))
			}
		}
	}
	reasons = append(reasons, m.inUse(changed)...)
	if len(reasons) == 0 {
		return nil
	}
	slices.Sort(reasons)
	return fault.New(fault.Conflict, "%s", fault.List(reasons, "\n"))
}

// LocalBridges returns the hypervisors' own bridges.
func LocalBridges() (all []string) {
	for _, t := range spec.ContainerTypes() {
		all = append(all, t.LocalBridge)
	}
	return all
}

// overlap returns an error if networks share addresses and one of them has
// changed. The parser already checks the networks of a single declaration.
func (d Desired) overlap(changed map[string]bool) error {
	var all []ipam.Network
	touched := false
	for _, n := range d.Networks {
		if n.Life == state.Alive {
			touched = touched || changed[spec.KindNetwork+"/"+n.Name]
			all = append(all, ipam.Network{Name: n.Name, Addresses: prefixes(n.Record.Network.Addresses)})
		}
	}
	if !touched {
		return nil
	}
	return ipam.Overlap(all)
}

// inUse returns a reason for each changed machine with a declared address that
// another machine has and keeps.
func (m *maker) inUse(changed map[string]bool) (reasons []string) {
	for _, n := range m.Networks {
		is := m.begin(n).Is
		own, wants := prefixes(is.Addresses), m.wantsOn(n)
		pool := poolOf(n, is, m.o, wants)
		giveOut(pool, n, wants, own, m.policy.Now)
		all := pool.State().Grants
		declared, _ := demands(n, wants, own)
		for _, one := range declared {
			if !changed[spec.KindMachine+"/"+one.owner.Machine] {
				continue
			}
			address := one.family[one.six]
			for _, g := range all {
				if g.Network != n.Name || g.Address != address || g.Owner == one.owner || !g.Released.IsZero() {
					continue
				}
				if gone, left := strings.CutSuffix(g.Owner.Machine, remainingMark); left {
					reasons = append(reasons, fmt.Sprintf("machine/%s: cannot give it %s on network/%s: the instance of the removed machine %s has it; choose another address, or delete that instance",
						one.owner.Machine, address, n.Name, gone))
					continue
				}
				if holder, stays := wants[key(g.Owner.Machine, nicOf(g))]; !stays || holder.keep {
					continue // the holder releases the address without a change by the user
				}
				reasons = append(reasons, fmt.Sprintf("machine/%s: cannot give it %s on network/%s: machine/%s has it; choose another address, or first declare another address for machine/%s",
					one.owner.Machine, address, n.Name, g.Owner.Machine, g.Owner.Machine))
			}
		}
	}
	return reasons
}

// resisting returns an error if the DHCP client of a NIC prevents the NIC from
// joining the network's bridge.
func (m *maker) resisting(n Network) error {
	for _, nic := range n.Record.Network.Interfaces {
		if why := m.o.Obstacles[nic]; why != "" {
			return fault.New(fault.NeedsOperator, "cannot put %s under %s: %s", nic, n.Record.Network.Bridge, why)
		}
	}
	return nil
}
