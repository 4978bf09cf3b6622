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

// A bridge is one network's at a time. Who else wants it gets it after that one
// or not at all, and no third network is concerned.

// claimOn says how good a network's claim on a bridge is: what is declared goes
// before what dies, then the one whose stamp the bridge bears, then the one that
// had it.
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

// rival says no to a network whose bridge is declared by another one, too, that
// has the better claim or comes first.
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
	return fault.New(fault.Conflict, "cannot make bridge %s: network/%s has it; name the network's bridge otherwise", bridge, other)
}

// share leaves each bridge to the network with the best claim on it. A dying
// one hands its bridge, with the machines on it, over to a declared one.
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

// inherited is what is recorded of the host's NICs under a network's bridge,
// with what comes with a bridge that it takes over, without what goes with its
// own.
func inherited(d Desired, planned []Planned, i int) map[string]json.RawMessage {
	all := maps.Clone(d.Networks[i].Status.Carried)
	for j, n := range d.Networks {
		switch {
		case planned[j].Heir == d.Networks[i].Name:
			for nic, had := range n.Status.Carried {
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

// deleted says what goes with a network.
func deleted(p Planned) string {
	if p.Heir != "" {
		return "bridge " + p.Is.Bridge + ", which " + spec.KindNetwork + "/" + p.Heir + " takes over"
	}
	return "bridge " + p.Is.Bridge
}
