package networkprovisioner

import (
	"slices"
	"strconv"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/plan"
)

// describe returns the steps that a plan shows for a network.
func describe(n Network, p Planned, o Observed) []plan.Step {
	s := plan.Step{Object: spec.KindNetwork + "/" + n.Name}
	if len(p.Errs) > 0 {
		s.Held = p.Errs[0].Error()
	}
	was := n.Status.Applied
	switch {
	case n.Life != state.Alive:
		s.Action, s.Impact, s.Detail, s.Held = "delete", plan.Destroy, deleted(p), ""
		if p.Waiting != "" {
			s.Detail += ", " + p.Waiting
		}
		return []plan.Step{s}
	case was == nil && !made(n, o):
		s.Action, s.Impact, s.Detail = "create", plan.None, summary(n.Record.Network)
		if p.guarded() {
			s.Impact = plan.Live
		}
		return []plan.Step{s}
	}
	if was != nil {
		s.Changes = changes(*was, n.Record.Network)
	}
	var words []string
	if len(s.Changes) > 0 {
		s.Impact = plan.Live
		words = []string{"changes " + fieldsOf(s.Changes)}
		if p.Cuts != "" {
			s.Impact, words = plan.Restart, []string{p.Cuts}
		}
		if p.Held != "" {
			s.Held, s.Allow = "--allow "+string(plan.Restart), plan.Restart
		}
	} else {
		for _, l := range p.Links {
			words = append(words, l.String())
		}
		if p.DHCP != nil && !o.Serving[n.UID] {
			words = append(words, "start DHCP")
		}
	}
	if len(words) == 0 && s.Held == "" {
		return nil
	}
	if s.Impact == "" {
		s.Impact = plan.Live
	}
	s.Action, s.Detail = "update", strings.Join(words, "; ")
	return []plan.Step{s}
}

// summary returns a short description of a network.
func summary(n spec.Network) string {
	words := []string{"bridge " + n.Bridge}
	if len(n.Addresses) > 0 {
		words[0] += " with " + strings.Join(n.Addresses, ", ")
	}
	if len(n.Interfaces) > 0 {
		words = append(words, "over "+strings.Join(n.Interfaces, ", ")+" (guarded: reverted if the host loses its connection)")
	}
	for _, flag := range []struct {
		word string
		on   bool
	}{{"forwarding", n.Forwarding}, {"NAT", n.NAT}, {"proxy ARP", n.ProxyARP}, {"DHCP", n.DHCP}} {
		if flag.on {
			words = append(words, flag.word)
		}
	}
	return strings.Join(words, ", ")
}

// ReadyStatus returns the status that the network will have. The plan of
// machines on networks that do not exist yet uses it.
func (p Planned) ReadyStatus(n Network) spec.NetworkStatus {
	s := n.Status
	s.State, s.Applied = stateReady, &p.Is
	s.Guests, s.Gateways, s.Nameservers, s.Published = p.Guests, p.Gateways, p.Nameservers, p.Published
	return s
}

// changes returns the fields that differ, with their impact on guests.
func changes(was, is spec.Network) []plan.Change {
	var all []plan.Change
	add := func(field, from, to string, impact plan.Impact) {
		if from != to {
			all = append(all, plan.Change{Field: field, From: from, To: to, Impact: impact})
		}
	}
	add("bridge", was.Bridge, is.Bridge, plan.Restart)
	impact := plan.Live
	if slices.ContainsFunc(was.Addresses, func(a string) bool { return !slices.Contains(is.Addresses, a) }) {
		impact = plan.Restart
	}
	add("addresses", strings.Join(was.Addresses, " "), strings.Join(is.Addresses, " "), impact)
	mtu := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	add("mtu", mtu(was.MTU), mtu(is.MTU), plan.Live)
	add("interfaces", strings.Join(was.Interfaces, " "), strings.Join(is.Interfaces, " "), plan.Live)
	add("forwarding", strconv.FormatBool(was.Forwarding), strconv.FormatBool(is.Forwarding), plan.Live)
	add("proxy-arp", strconv.FormatBool(was.ProxyARP), strconv.FormatBool(is.ProxyARP), plan.Live)
	add("nat", strconv.FormatBool(was.NAT), strconv.FormatBool(is.NAT), plan.Live)
	impact = plan.Live
	if was.DHCP && !is.DHCP { // the guests' leases and their DNS server end
		impact = plan.Restart
	}
	add("dhcp", strconv.FormatBool(was.DHCP), strconv.FormatBool(is.DHCP), impact)
	return all
}
