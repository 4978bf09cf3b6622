package networkprovisioner

import (
	"context"
	"slices"
	"strings"

	"hostler/hostnet"
	"hostler/hostnet/firewall"
	"hostler/sysctl"
)

// nicsUnder returns the host NICs under a bridge; guests' ports are veth pairs
// and taps.
func nicsUnder(o hostnet.Observed, bridge string) []string {
	var nics []string
	for _, l := range o.Links {
		if l.Master == bridge && (l.Kind == "" || l.Kind == "bond" || l.Kind == "vlan") {
			nics = append(nics, l.Name)
		}
	}
	return nics
}

// hostsOwn reports whether the host's own network is on a bridge: a host NIC is
// under it, a default route or a lease is on it, or it survives a reboot. This
// works without a record, and while the NIC is unplugged.
func hostsOwn(o Observed, bridge string) bool {
	return len(nicsUnder(o.Host, bridge)) > 0 || slices.Contains(o.Own.Persistent, bridge) ||
		slices.ContainsFunc(o.Host.RoutesOf(bridge), hostnet.Route.Default) ||
		slices.ContainsFunc(o.Host.AddressesOf(bridge), leasedAddress)
}

// idleBridge reports whether a bridge is unused. It looks at the observed
// ports, because the steps that would take a NIC from an undeclared bridge are
// not carried out.
func idleBridge(o Observed, bridge string) bool {
	return len(o.Host.Ports(bridge)) == 0 && !hostsOwn(o, bridge)
}

// unknownBridge returns the notice about a bridge of ours that nothing declares
// and that stays.
func unknownBridge(o Observed, bridge string) string {
	if !hostsOwn(o, bridge) {
		return "the bridge " + bridge + " has this agent's stamp and no declaration: declare its network again, or remove it with `ip link delete " + bridge + "`"
	}
	with, back := "its NIC among the network's `interfaces`", "the NIC"
	if nics := nicsUnder(o.Host, bridge); len(nics) > 0 {
		back = strings.Join(nics, ", ")
		with = "`interfaces: [" + back + "]`"
	}
	return "the bridge " + bridge + " carries the host's own network and has this agent's stamp but no declaration, so it is not changed; " +
		"declare its network again, with " + with + "; to remove it, delete that network afterwards, which gives " + back + " the bridge's addresses and routes back"
}

// recall adds the firewall's recorded rules of bridges whose networks' records
// are lost. Guests need them until the networks are declared again.
func (w *Worker) recall(ctx context.Context, t *turn) error {
	var lost []firewall.Network
	for _, bridge := range t.p.Unknown {
		l, _ := t.o.Host.Link(bridge)
		_, uid, stamped := hostnet.ParseStamp(l.Alias)
		if !stamped {
			continue
		}
		n := firewall.Network{Owner: uid, Bridge: bridge}
		for _, a := range t.o.Host.AddressesOf(bridge) {
			if a.Permanent() && !a.Prefix.Addr().IsLinkLocalUnicast() {
				n.Subnets = append(n.Subnets, a.Prefix)
			}
		}
		lost = append(lost, n)
	}
	if len(lost) == 0 || len(t.p.Rules.Networks) == 0 { // without networks the table is not written
		return nil
	}
	known, err := w.Firewall.Recall(ctx, lost)
	if err != nil {
		return err
	}
	four, six := false, false
	for _, n := range known {
		for _, s := range n.Subnets {
			four, six = four || n.Forward && s.Addr().Is4(), six || n.Forward && s.Addr().Is6()
		}
	}
	t.p.Rules.Networks = append(t.p.Rules.Networks, known...)
	routers, settings := router(t.o, w.policy, four, six)
	t.p.Routers, t.p.Parameters = joined(t.p.Routers, routers), joined(t.p.Parameters, settings)
	return nil
}

// joined returns settings, plus the settings of more with other names.
func joined(settings, more []sysctl.Setting) []sysctl.Setting {
	for _, m := range more {
		if !slices.ContainsFunc(settings, func(s sysctl.Setting) bool { return s.Name == m.Name }) {
			settings = append(settings, m)
		}
	}
	return settings
}
