package networkprovisioner

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/firewall"
	"hostler/hostnet/ipam"
	"hostler/internal/plan"
	"hostler/sysctl"
)

// Make returns the plan that turns observed into desired. It is a pure
// function. After the plan is carried out, the next plan has no operations.
// Make goes through the networks in phases, since networks compete for bridges,
// and bridges for the host's NICs.
func Make(d Desired, o Observed, policy Policy) Plan {
	m := newMaker(o, policy)
	m.readDesired(d)
	for i := range m.Networks {
		m.choose(i)
	}
	for i := range m.Networks {
		m.settle(i)
	}
	m.publish()
	steps := m.links()
	for i := range m.Networks {
		m.complete(i, steps)
	}
	m.services()
	return m.p
}

// maker makes a plan. Methods with the parameter i plan the network at position
// i.
type maker struct {
	// Desired holds copies of the declared networks, which the planner changes.
	Desired
	o      Observed
	policy Policy
	p      Plan
	// recorded holds the networks as they are in the store.
	recorded []Network
	// at holds the positions of the networks by uid, named by name.
	at, named map[string]int
	// claims holds the steps that stamp unstamped bridges of ours, by the
	// network's uid.
	claims map[string]hostnet.Step
	// published holds the ports that are already published.
	published map[string]bool
	// returnable holds the routes over the NICs under bridges, as they will be
	// after the NICs have their recorded addresses back.
	returnable []ipam.HostRoute
	// users holds the networks of each bridge. best holds the network that gets
	// the bridge.
	users map[string][]int
	best  map[string]int
	// wanted holds the wanted bridges. returning is the position of the first
	// network that gives a NIC its settings back, or -1.
	wanted    hostnet.Wanted
	returning int
	// findings holds the foreign chains that block flows, by the network's uid.
	findings map[string][]firewall.Finding
	// settings holds the kernel parameters of bridges. four and six are true if
	// the host must forward IPv4 and IPv6.
	settings  []sysctl.Setting
	four, six bool
	operations
}

// newMaker returns a maker for this host without networks.
func newMaker(o Observed, policy Policy) *maker {
	o.Host.Links = slices.Clone(o.Host.Links)
	return &maker{
		o: o, policy: policy, at: map[string]int{}, named: map[string]int{}, claims: map[string]hostnet.Step{}, published: map[string]bool{},
		users: map[string][]int{}, best: map[string]int{}, returning: -1, findings: map[string][]firewall.Finding{},
		wanted: hostnet.Wanted{Namespace: policy.Namespace, NICSettings: map[string]hostnet.NICSettings{}},
	}
}

// readDesired copies and indexes the declared objects. It also marks the
// addresses of instances without a machine and finds unstamped bridges of the
// networks.
func (m *maker) readDesired(d Desired) {
	m.Desired, m.recorded = d, d.Networks
	m.Networks, m.p.Networks = slices.Clone(d.Networks), make([]Planned, len(d.Networks))
	if m.index == nil {
		m.index = indexOf(d)
	}
	for i := range m.Networks {
		n := &m.Networks[i]
		m.at[n.UID], m.named[n.Name] = i, i
		for _, port := range n.Status.Published {
			m.published[port] = true
		}
		m.offerAgain(n)
		m.markRemaining(n)
		m.claim(*n)
		m.returnable = append(m.returnable, recordedRoutes(n.Status.NICSettings)...)
	}
}

// choose decides which version of a network is carried out, gives the network's
// guests their addresses and adds the network to the users of its bridge.
func (m *maker) choose(i int) {
	n, p := m.Networks[i], &m.p.Networks[i]
	*p = m.begin(n)
	m.assign(n, p)
	holders := holdersOf(p.Guests)
	p.On = !p.Out && (n.Life == state.Alive || len(holders) > 0)
	if n.Life != state.Alive && len(holders) > 0 {
		p.Waiting = "waiting for machine/" + holders[0] + " to detach"
	}
	bridge := p.Is.Bridge
	m.users[bridge] = append(m.users[bridge], i)
	if !p.On {
		return
	}
	if j, ok := m.best[bridge]; !ok || claimOn(bridge, n, m.o.Host) > claimOn(bridge, m.Networks[j], m.o.Host) {
		m.best[bridge] = i
	}
}

// settle decides whether a network gets its bridge. It plans the gateways, DHCP
// and firewall rules for the network's guests, and the wanted bridge.
func (m *maker) settle(i int) {
	n, p := m.Networks[i], &m.p.Networks[i]
	m.share(n, p, i)
	p.Gateways, p.Nameservers = towards(p.Is, n.Status.Applied, m.o)
	p.DHCP = m.dhcpOf(i)
	m.rules(n, *p)
	if c, ok := m.claims[n.UID]; ok {
		p.Links = []hostnet.Step{c}
	}
	n.Status.NICSettings = m.inherited(i)
	m.carry(n, p)
	if _, gives := returning(*p); gives && m.returning < 0 {
		m.returning = i
	}
	m.want(n, *p)
}

// complete plans the operations of a network. steps are the steps on all links.
func (m *maker) complete(i int, steps []hostnet.Step) {
	n, p := m.Networks[i], &m.p.Networks[i]
	if m.o.Own.Armed == "" { // the end of an armed change may put the NIC under the bridge again
		forget(p, steps)
	}
	hold(n, p, m.o.Own)
	p.Gone = n.Life != state.Alive && !p.On && !made(n, m.o) && m.o.Own.Armed != object(n) && !m.o.Serving[n.UID] && !m.o.Served[n.UID]
	p.Findings = m.findings[n.UID]
	m.parameters(*p)
	m.operate(n, p, m.recorded[i].Status)
	p.Steps = describe(n, *p, m.o)
}

// begin chooses the version of the network to carry out. It chooses the applied
// version if the declared version conflicts with the host or would cut off
// guests without permission, else the declared version.
func (m *maker) begin(n Network) Planned {
	p := Planned{Is: n.Record.Network}
	was := n.Status.Applied
	if n.Life != state.Alive {
		if was != nil {
			p.Is = *was
		}
		return p
	}
	err := cmp.Or(m.rival(n), m.unfit(n), m.resisting(n))
	if err != nil {
		p.Errs = append(p.Errs, err)
		if p.Out = was == nil || was.Bridge == p.Is.Bridge && !made(n, m.o); was != nil {
			p.Is = *was
		}
		return p
	}
	if reason := m.o.Own.Refused[n.Name]; reason != "" && m.o.Own.Armed != object(n) {
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
		if c.Impact == plan.Restart {
			cuts = append(cuts, c.Field)
		}
	}
	if guests := m.attached(n); len(cuts) > 0 && len(guests) > 0 {
		p.Cuts = fmt.Sprintf("changing %s cuts off %s", strings.Join(cuts, " and "), strings.Join(guests, ", "))
		if !allows(n) {
			p.Is, p.Held = *was, p.Cuts
		}
	}
	return p
}

func allows(n Network) bool {
	return slices.Contains(n.Record.Allow, string(plan.Restart)) || slices.Contains(n.Record.Allow, string(plan.Recreate))
}

// attached names the machines that use an interface on the applied version of
// the network. It leaves out a machine that has only an address of the declared
// version, because this machine waits for the declared version. If the applied
// version gives addresses, it also leaves out a machine without an address.
func (d Desired) attached(n Network) []string {
	var names []string
	own := prefixes(n.Status.Applied.Addresses)
	for _, g := range d.guestsOf(n) {
		for nic := range g.NICs {
			entry, ok := n.Status.Guests[key(g.Name, nic)]
			inside := len(own) == 0 || slices.ContainsFunc(addressesOf(entry), func(a netip.Addr) bool {
				return slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Contains(a) })
			})
			used := g.Status.InUse(spec.NICObject(n.Name, nic))
			if ok && inside && used && entry.Released == nil && !slices.Contains(names, "machine/"+g.Name) {
				names = append(names, "machine/"+g.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// holdersOf returns the sorted names of the machines that have an address that
// is not released.
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

// made reports whether the network's bridge is on the host.
func made(n Network, o Observed) bool {
	return slices.ContainsFunc(o.Host.Links, func(l hostnet.Link) bool {
		_, uid, ok := hostnet.ParseStamp(l.Alias)
		return ok && uid == n.UID
	})
}

// stamped reports whether a bridge has the stamp with this uid.
func stamped(o hostnet.Observed, namespace, uid string) bool {
	return slices.ContainsFunc(o.Links, func(l hostnet.Link) bool { return l.Alias == hostnet.Stamp(namespace, uid) })
}

// towards returns the gateways and name servers for guests. The routes of the host's NIC
// may still be on the bridge that the network had before.
func towards(is spec.Network, was *spec.Network, o Observed) (gateways, nameservers []string) {
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
			through := r.Link == is.Bridge || was != nil && r.Link == was.Bridge || slices.Contains(is.Interfaces, r.Link)
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
