package networkprovisioner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/firewall"
	"hostler/hostnet/guard"
	"hostler/hostnet/persist"
	"hostler/sysctl"
)

// operations collects the operations of the networks by their kinds.
type operations struct {
	statuses map[string]spec.NetworkStatus
	// unmade holds the deletions of records of networks that were never on the
	// host. The other lists hold one kind of operation each.
	unmade, changed, ended, served, booted, forgotten []Operation
	// tools is true if programs are needed. dhcp is true if these include the
	// programs for DHCP.
	tools, dhcp bool
	// changing is true if the links of a network change. parked holds the
	// bridges over a NIC whose original settings are recorded.
	changing bool
	parked   map[string]bool
	// needed holds the bridges that must survive a reboot.
	needed map[string]bool
}

// operate plans the operations for one network. If the network waits for a
// retry, operate plans none that change the host.
func (m *maker) operate(n Network, p *Planned, recorded spec.NetworkStatus) {
	m.promise(n, *p, recorded)
	delayed := m.policy.Delayed[n.UID]
	m.tools = m.tools || p.On || !never(n, m.o)
	m.dhcp = m.dhcp || p.DHCP != nil && !m.o.Serving[n.UID] && !delayed
	m.changing = m.changing || len(p.Links) > 0 && !delayed
	for nic := range p.NICSettings {
		if l, _ := m.o.Host.Link(nic); l.Master != "" {
			put(&m.parked, l.Master, true)
		}
	}
	m.boot(n, p, delayed)
	if delayed {
		// Keep the record while the host's boot would create the bridge again.
		p.Gone = p.Gone && !slices.Contains(m.o.Own.Persistent, p.Is.Bridge)
	} else {
		m.change(n, *p)
		m.serve(n, *p)
	}
	switch forget := (Operation{Op: opForget, UID: n.UID}); {
	case p.Gone && never(n, m.o) && m.o.Missing.NFT: // deleted even if programs are missing
		m.unmade = append(m.unmade, forget)
	case p.Gone:
		m.forgotten = append(m.forgotten, forget)
	}
}

// never reports whether the network has never been on the host.
func never(n Network, o Observed) bool { return n.Status.Applied == nil && !made(n, o) }

// put sets an entry of a map and creates the map if it is nil.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// promise plans to store the network's assigned addresses if they differ from
// the recorded ones.
func (m *maker) promise(n Network, p Planned, recorded spec.NetworkStatus) {
	s := recorded
	if n.Life == state.Alive && s.State == "" {
		s.State = statePending
	}
	s.Guests, s.NICSettings = p.Guests, encodeSettings(p)
	if !reconcile.SameStatus(recorded, s) {
		put(&m.statuses, n.UID, s)
	}
}

// change plans the network's steps on links.
func (m *maker) change(n Network, p Planned) {
	if len(p.Links) == 0 {
		return
	}
	op := Operation{Op: opLinks, UID: n.UID, Links: p.Links, EndServer: removes(p.Links) && p.DHCP == nil}
	if p.guarded() {
		op.Change = &guard.Change{Object: object(n), Key: guardKey(n), Steps: p.Links}
		if was := n.Status.Applied; n.Life == state.Alive && (was == nil || len(changes(*was, p.Is)) > 0) {
			op.Change.Confirm = n.Record.Confirm.Std()
		}
	}
	m.changed = append(m.changed, op)
}

func removes(steps []hostnet.Step) bool {
	return slices.ContainsFunc(steps, func(s hostnet.Step) bool { return s.Op == hostnet.RemoveBridge })
}

// serve plans the start or end of the network's DHCP server.
func (m *maker) serve(n Network, p Planned) {
	if p.DHCP == nil {
		if m.o.Served[n.UID] {
			m.ended = append(m.ended, Operation{Op: opEndServer, UID: n.UID, Server: n.UID})
		}
		return
	}
	if again, holds := m.o.left(leftServer(n.UID), fmt.Sprint(*p.DHCP)); !holds {
		m.served = append(m.served, Operation{Op: opServe, UID: n.UID, Server: n.UID, DHCP: p.DHCP, Again: again})
	}
}

// boot plans to make the network's bridge over a host NIC survive a reboot,
// once the bridge is as declared and no change is armed.
func (m *maker) boot(n Network, p *Planned, delayed bool) {
	if !p.On || len(p.Is.Interfaces) == 0 {
		return
	}
	put(&m.needed, p.Is.Bridge, true)
	if p.Restored {
		if delayed {
			return
		}
		m.booted = append(m.booted, Operation{Op: opRestore, UID: n.UID, Boot: persist.Bridge{Name: p.Is.Bridge}})
		return
	}
	nic := p.Is.Interfaces[0]
	l, there := m.o.Host.Link(nic)
	if !m.persists() || delayed || len(p.Links) > 0 || len(p.Errs) > 0 || !there || l.Master != p.Is.Bridge {
		return
	}
	if len(p.Is.Interfaces) > 1 {
		p.Notes = append(p.Notes, "after the host's start "+strings.Join(p.Is.Interfaces[1:], ", ")+" joins the bridge only when the agent starts")
	}
	bridge, _ := m.o.Host.Link(p.Is.Bridge)
	b := persist.Bridge{
		Name: p.Is.Bridge, NIC: nic, Index: l.Index, Stamp: hostnet.Stamp(m.policy.Namespace, n.UID),
		MAC: bridge.MAC, MTU: p.Is.MTU, Addresses: prefixes(p.Is.Addresses), Namespace: m.policy.Namespace,
	}
	if _, holds := m.o.left(leftBoot(b.Name), fmt.Sprint(b)); !holds {
		m.booted = append(m.booted, Operation{Op: opPersist, UID: n.UID, Boot: b})
	}
}

// persists reports whether the agent can now change which bridges survive a
// reboot.
func (m *maker) persists() bool { return m.o.Own.Persists && m.o.Own.Armed == "" }

// drops plans to remove the boot files of bridges that no longer need them. A
// bridge that still has a NIC under it keeps its boot files. If links of a
// network still change, drops removes the files anyway, because the files
// themselves may put the NIC back under the bridge.
func (m *maker) drops() (all []Operation) {
	if !m.persists() {
		return nil
	}
	for _, bridge := range m.o.Own.Persistent {
		stuck := m.parked[bridge] || len(nicsUnder(m.o.Host, bridge)) > 0
		if m.needed[bridge] || slices.Contains(m.p.Unknown, bridge) || !m.changing && stuck {
			continue
		}
		op := Operation{Op: opDrop, Optional: true, Boot: persist.Bridge{Name: bridge}}
		for _, i := range m.users[bridge] {
			if n := m.Networks[i]; n.Life != state.Alive { // the network's record stays until the drop succeeds
				op.UID, op.Optional = n.UID, false
				break
			}
		}
		if !m.policy.Delayed[op.UID] {
			all = append(all, op)
		}
	}
	return all
}

// services plans the operations that serve all networks and puts all operations
// in order.
func (m *maker) services() {
	p, o := &m.p, m.o
	add := func(ops ...Operation) { p.Operations = append(p.Operations, ops...) }
	add(m.unmade...)
	if m.tools && (o.Missing.NFT || m.dhcp && o.Missing.DHCP) {
		add(Operation{Op: opInstall})
	}
	if len(m.statuses) > 0 {
		add(Operation{Op: opPromise, Statuses: m.statuses})
	}
	recalled, unread := m.recall()
	p.Rules.Networks = append(p.Rules.Networks, recalled...)
	m.forwarding(recalled)
	load, set := m.load(unread), m.set()
	if slices.ContainsFunc(m.changed, m.joinsNIC) {
		// The rules of a bridge without NICs would drop packets from the NIC, and the
		// release of its parameters must not follow the NIC's own settings.
		add(load...)
		add(set...)
		load, set = nil, nil
	}
	add(m.changed...)
	for _, s := range p.Strays {
		add(Operation{Op: opStray, Optional: true, Links: []hostnet.Step{s}})
	}
	for _, uid := range slices.Sorted(maps.Keys(o.Served)) {
		_, known := m.at[uid]
		swept := slices.ContainsFunc(p.Strays, func(s hostnet.Step) bool { return s.UID == uid })
		if !known && (swept || !stamped(o.Host, m.policy.Namespace, uid)) {
			p.Orphans = append(p.Orphans, uid)
			add(Operation{Op: opOrphan, Optional: true, Server: uid})
		}
	}
	// Load the firewall before the host forwards. Stop forwarding before the
	// last rules go.
	if len(p.Rules.Networks) == 0 {
		add(set...)
		add(load...)
	} else {
		add(load...)
		add(set...)
	}
	add(m.ended...) // end old servers first, because a new server may need the same bridge
	add(m.served...)
	add(m.booted...)
	add(m.drops()...)
	add(m.forgotten...)
}

// joinsNIC reports whether the operation puts a host NIC under a bridge for the first
// time. A NIC that returns to its bridge, e.g. after somebody deleted the bridge, does
// not wait for the rules: they let it through already.
func (m *maker) joinsNIC(op Operation) bool {
	var was *spec.Network
	if i, known := m.at[op.UID]; known {
		was = m.Networks[i].Status.Applied
	}
	return slices.ContainsFunc(op.Links, func(s hostnet.Step) bool {
		return s.Op == hostnet.Enslave && (was == nil || was.Bridge != s.Bridge || !slices.Contains(was.Interfaces, s.Link))
	})
}

// recall returns the networks whose records are lost, with the settings of
// their rules in our table. Their guests need the rules until the networks are
// declared again. If no other network has rules, recall returns nil, because
// the plan then does not write the table. unread is the error of reading the
// table.
func (m *maker) recall() (known []firewall.Network, unread error) {
	var lost []firewall.Network
	for _, bridge := range m.p.Unknown {
		l, _ := m.o.Host.Link(bridge)
		if _, uid, stamped := hostnet.ParseStamp(l.Alias); stamped {
			lost = append(lost, lostNetwork(m.o.Host, bridge, uid))
		}
	}
	switch {
	case len(lost) == 0 || len(m.p.Rules.Networks) == 0:
		return nil, nil
	case m.o.Tables == nil:
		return nil, m.o.TablesErr
	}
	return m.o.Tables.Recall(lost), nil
}

func lostNetwork(o hostnet.Observed, bridge, uid string) firewall.Network {
	n := firewall.Network{Owner: uid, Bridge: bridge}
	for _, a := range o.AddressesOf(bridge) {
		if a.Permanent() && !a.Prefix.Addr().IsLinkLocalUnicast() {
			n.Subnets = append(n.Subnets, a.Prefix)
		}
	}
	return n
}

// bereft reports whether all networks that could have guests have lost their
// records. In this case the rules and parameters stay as they are.
func (m *maker) bereft() bool { return len(m.p.Rules.Networks) == 0 && len(m.p.Unknown) > 0 }

// load plans to load the firewall if the host's table differs from the rules.
func (m *maker) load(unread error) []Operation {
	if m.bereft() || len(m.p.Rules.Networks) == 0 && m.o.Missing.NFT {
		return nil // if there are rules, opInstall comes first
	}
	if m.o.Tables != nil && m.o.Tables.Holds(m.p.Rules) {
		return nil
	}
	again, _ := m.o.left(leftRules, m.p.rules())
	return []Operation{{Op: opRules, Again: again, Err: unread}}
}

// rules returns a text for comparing the rules with those of another plan. It
// is "" if there are none.
func (p Plan) rules() string {
	if len(p.Rules.Networks) == 0 {
		return ""
	}
	return fmt.Sprint(p.Rules)
}

// set plans the kernel parameters. When the last network that needs forwarding
// goes, forwarding stays on if foreign bridges rely on it by now.
func (m *maker) set() (all []Operation) {
	if m.bereft() || len(m.Networks) == 0 && m.o.Missing.NFT && m.o.Left == nil {
		return nil
	}
	for _, forwarding := range []string{forwarding4, forwarding6} {
		if slices.ContainsFunc(m.p.Parameters, func(s sysctl.Setting) bool { return s.Name == forwarding }) {
			continue
		}
		users := forwarders(m.o.Host, m.policy, forwarding == forwarding4)
		if forwarding == forwarding6 { // without accept_ra a router would lose its own default route
			for _, name := range m.o.Owned[ownerRouters] {
				all = append(all, Operation{Op: opRelease, Owner: ownerRouters, Parameter: name, Users: users})
			}
		}
		if slices.Contains(m.o.Owned[ownerNetworks], forwarding) {
			all = append(all, Operation{Op: opRelease, Owner: ownerNetworks, Parameter: forwarding, Users: users})
		}
	}
	settings := []OwnSettings{{ownerRouters, m.p.Routers}, {ownerNetworks, m.p.Parameters}}
	if len(m.p.Routers) == 0 { // stop forwarding before accept_ra goes back
		slices.Reverse(settings)
	}
	if again, holds := m.o.left(leftParameters, fmt.Sprint(settings)); !holds {
		all = append(all, Operation{Op: opParameters, Settings: settings, Again: again})
	}
	return all
}
