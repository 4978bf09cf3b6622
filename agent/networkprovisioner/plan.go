package networkprovisioner

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
)

// Make returns the plan from observed to desired. It is pure, and after the
// plan is carried out, the next plan has no steps.
func Make(d Desired, o Observed, policy Policy) Plan {
	d = withRemaining(d, o, policy.Now)
	p := Plan{Networks: make([]Planned, len(d.Networks))}
	claims := claim(d, &o.Host, o.Own, policy.Namespace)
	for i, n := range d.Networks {
		p.Networks[i] = begin(d, n, o, policy)
	}
	assign(d, p.Networks, policy)
	for i, n := range d.Networks {
		one := &p.Networks[i]
		holders := holdersOf(one.Guests)
		one.On = !one.Out && (n.Life == state.Alive || len(holders) > 0)
		if n.Life != state.Alive && len(holders) > 0 {
			one.Waiting = "waiting for machine/" + holders[0] + " to detach"
		}
	}
	share(d, p.Networks, o.Host)
	for i := range d.Networks {
		one := &p.Networks[i]
		one.Gateways, one.Nameservers = towards(one.Is, o)
		one.DHCP = served(*one, o)
	}
	p.Rules = rules(d, p.Networks, o)
	publish(&p.Rules, d, p.Networks, o)
	p.Routers, p.Parameters = parameters(d, p.Networks, o, policy, len(p.Rules.Publish) > 0)
	p.Forwarders = map[string][]string{forwarding4: forwarders(o.Host, policy, true), forwarding6: forwarders(o.Host, policy, false)}
	links(&p, d, o, policy, claims)
	for i, n := range d.Networks {
		p.Networks[i].Steps = describe(n, p.Networks[i], o)
	}
	for _, uid := range slices.Sorted(maps.Keys(o.Served)) {
		known := slices.ContainsFunc(d.Networks, func(n Network) bool { return n.UID == uid })
		swept := slices.ContainsFunc(p.Strays, func(s hostnet.Step) bool { return s.UID == uid })
		if !known && (swept || !stamped(o.Host, policy.Namespace, uid)) {
			p.Orphans = append(p.Orphans, uid)
		}
	}
	return p
}

// begin chooses the version of the network to carry out: the declared version,
// or the applied version while the change conflicts with the host or would cut
// off guests without permission.
func begin(d Desired, n Network, o Observed, policy Policy) Planned {
	p := Planned{Is: n.Record.Network}
	was := n.Status.Applied
	if n.Life != state.Alive {
		if was != nil {
			p.Is = *was
		}
		return p
	}
	err := rival(d, n, o.Host)
	if err == nil {
		err = unfit(n, o.Host, policy)
	}
	if err != nil {
		p.Errs = append(p.Errs, err)
		if p.Out = was == nil || was.Bridge == p.Is.Bridge && !made(n, o); was != nil {
			p.Is = *was
		}
		return p
	}
	if reason := o.Own.Refused[n.Name]; reason != "" && o.Own.Armed != object(n) {
		p.Errs = append(p.Errs, undone(n, reason))
		if p.Out = was == nil; was != nil {
			p.Is = *was // the guard has restored that version
		}
		return p
	}
	if was == nil {
		return p
	}
	var cuts []string
	for _, c := range changes(*was, n.Record.Network) {
		if c.Impact == impactRestart {
			cuts = append(cuts, c.Field)
		}
	}
	if guests := attached(d, n); len(cuts) > 0 && len(guests) > 0 && !allows(n) {
		p.Is = *was
		p.Held = fmt.Sprintf("changing %s cuts off %s", strings.Join(cuts, " and "), strings.Join(guests, ", "))
	}
	return p
}

func allows(n Network) bool {
	return slices.Contains(n.Record.Allow, impactRestart) || slices.Contains(n.Record.Allow, "recreate")
}

// attached names the machines that have an instance on the network.
func attached(d Desired, n Network) []string {
	var names []string
	for _, g := range d.guestsOf(n) {
		for nic := range g.NICs {
			if entry, ok := n.Status.Guests[key(g.Name, nic)]; ok && entry.Released == nil && g.Instance && !slices.Contains(names, "machine/"+g.Name) {
				names = append(names, "machine/"+g.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// holdersOf names the machines that have an address, sorted.
func holdersOf(guests map[string]spec.GuestAddress) []string {
	var names []string
	for k, g := range guests {
		if g.Released == nil {
			names = append(names, ownerOf(k).Machine)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// changes returns the fields that differ, with their impact on guests.
func changes(was, is spec.Network) []Change {
	var all []Change
	add := func(field, from, to, impact string) {
		if from != to {
			all = append(all, Change{Field: field, From: from, To: to, Impact: impact})
		}
	}
	add("bridge", was.Bridge, is.Bridge, impactRestart)
	impact := impactLive
	if slices.ContainsFunc(was.Addresses, func(a string) bool { return !slices.Contains(is.Addresses, a) }) {
		impact = impactRestart
	}
	add("addresses", strings.Join(was.Addresses, " "), strings.Join(is.Addresses, " "), impact)
	mtu := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	add("mtu", mtu(was.MTU), mtu(is.MTU), impactLive)
	add("interfaces", strings.Join(was.Interfaces, " "), strings.Join(is.Interfaces, " "), impactLive)
	add("forwarding", strconv.FormatBool(was.Forwarding), strconv.FormatBool(is.Forwarding), impactLive)
	add("proxy-arp", strconv.FormatBool(was.ProxyARP), strconv.FormatBool(is.ProxyARP), impactLive)
	add("nat", strconv.FormatBool(was.NAT), strconv.FormatBool(is.NAT), impactLive)
	add("dhcp", strconv.FormatBool(was.DHCP), strconv.FormatBool(is.DHCP), impactLive)
	return all
}

// made reports whether the network's bridge is on the host.
func made(n Network, o Observed) bool {
	return slices.ContainsFunc(o.Host.Links, func(l hostnet.Link) bool {
		_, uid, ok := hostnet.ParseStamp(l.Alias)
		return ok && uid == n.UID
	})
}

// stamped reports whether a bridge bears the uid's stamp.
func stamped(o hostnet.Observed, namespace, uid string) bool {
	return slices.ContainsFunc(o.Links, func(l hostnet.Link) bool { return l.Alias == hostnet.Stamp(namespace, uid) })
}

// towards returns the gateways and name servers for guests.
func towards(is spec.Network, o Observed) (gateways, nameservers []string) {
	var own []string
	for _, p := range prefixes(is.Addresses) {
		own = append(own, p.Addr().String())
	}
	if forwards(is) {
		gateways = own
	}
	if len(is.Interfaces) > 0 { // the host NIC's gateway is the way out
		gateways = nil
		for _, r := range o.Host.Routes {
			through := r.Link == is.Bridge || slices.Contains(is.Interfaces, r.Link)
			near := slices.ContainsFunc(prefixes(is.Addresses), func(p netip.Prefix) bool { return p.Contains(r.Gateway) })
			if g := r.Gateway.String(); r.Default() && through && near && !slices.Contains(gateways, g) {
				gateways = append(gateways, g)
			}
		}
	}
	switch {
	case is.DHCP:
		nameservers = own
	case len(gateways) > 0:
		for _, a := range o.Resolvers.Servers {
			nameservers = append(nameservers, a.String())
		}
	}
	return gateways, nameservers
}

// describe returns a network's steps for display.
func describe(n Network, p Planned, o Observed) []Step {
	s := Step{Network: n.Name}
	if len(p.Errs) > 0 {
		s.Held = p.Errs[0].Error()
	}
	was := n.Status.Applied
	switch {
	case n.Life != state.Alive:
		s.Action, s.Impact, s.Detail, s.Held = "delete", impactDestroy, deleted(p), ""
		if p.Waiting != "" {
			s.Detail += ", " + p.Waiting
		}
		return []Step{s}
	case was == nil && !made(n, o):
		s.Action, s.Impact, s.Detail = "create", impactNone, summary(n.Record.Network)
		if p.guarded() {
			s.Impact = impactLive
		}
		return []Step{s}
	}
	if was != nil {
		s.Changes = changes(*was, n.Record.Network)
	}
	var words []string
	if len(s.Changes) > 0 {
		s.Impact = impactLive
		for _, c := range s.Changes {
			words = append(words, c.Field)
		}
		words = []string{"changes " + strings.Join(words, ", ")}
		if p.Held != "" {
			s.Impact, s.Held, s.Allow, words = impactRestart, "--allow "+impactRestart, impactRestart, []string{p.Held}
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
		s.Impact = impactLive
	}
	s.Action, s.Detail = "update", strings.Join(words, "; ")
	return []Step{s}
}

// summary describes a network briefly.
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

// ReadyStatus returns the future status of a network, for planning machines on
// networks that do not exist yet.
func (p Planned) ReadyStatus(n Network) spec.NetworkStatus {
	s := n.Status
	s.State, s.Applied = stateReady, &p.Is
	s.Guests, s.Gateways, s.Nameservers, s.Published = p.Guests, p.Gateways, p.Nameservers, p.Published
	return s
}
