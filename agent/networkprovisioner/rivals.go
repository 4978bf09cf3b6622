package networkprovisioner

import (
	"encoding/json"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/internal/fault"
)

// A bridge belongs to one network at a time. Another network that declares it
// gets it afterwards or not at all; other networks are not affected.

// claimOn ranks a network's claim on a bridge: declared networks precede dying
// networks, then the network whose stamp the bridge bears, then the network
// that had the bridge.
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
// better claim, or an equal claim and comes first.
func rival(d Desired, n Network, o hostnet.Observed) error {
	bridge := n.Record.Network.Bridge
	first := true
	for _, other := range d.networksOn(bridge) {
		if other.UID == n.UID {
			first = false
			continue
		}
		if other.Life != state.Alive || other.Record.Network.Bridge != bridge {
			continue
		}
		if theirs, own := claimOn(bridge, other, o), claimOn(bridge, n, o); theirs > own || theirs == own && first {
			return taken(bridge, other.Name)
		}
	}
	return nil
}

func taken(bridge, other string) error {
	return fault.New(fault.Conflict, "cannot make bridge %s: network/%s uses it; choose another bridge name", bridge, other)
}

// share assigns each bridge to the network with the best claim. A dying network
// hands its bridge, with its machines, over to a declared network.
func share(d Desired, planned []Planned, o hostnet.Observed) {
	best := map[string]int{}
	for i, p := range planned {
		if !p.On {
			continue
		}
		if j, ok := best[p.Is.Bridge]; !ok || claimOn(p.Is.Bridge, d.Networks[i], o) > claimOn(p.Is.Bridge, d.Networks[j], o) {
			best[p.Is.Bridge] = i
		}
	}
	for i, n := range d.Networks {
		one := &planned[i]
		j, ok := best[one.Is.Bridge]
		switch {
		case !ok || j == i:
		case n.Life != state.Alive:
			one.On, one.Waiting, one.Heir = false, "", d.Networks[j].Name
		case one.On:
			one.On, one.Out = false, true
			one.Errs = append(one.Errs, taken(one.Is.Bridge, d.Networks[j].Name))
		}
	}
}

// inherited returns the NIC records of a network: its own, plus those of a
// bridge that it takes over, minus those of a bridge that it hands over.
func inherited(d Desired, planned []Planned, i int) map[string]json.RawMessage {
	all := maps.Clone(d.Networks[i].Status.NICSettings)
	for j, n := range d.Networks {
		switch {
		case planned[j].Heir == d.Networks[i].Name:
			for nic, had := range n.Status.NICSettings {
				if _, own := all[nic]; !own && wants(planned[i], nic) {
					if all == nil {
						all = map[string]json.RawMessage{}
					}
					all[nic] = had
				}
			}
		case planned[i].Heir == n.Name:
			maps.DeleteFunc(all, func(nic string, _ json.RawMessage) bool { return wants(planned[j], nic) })
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
