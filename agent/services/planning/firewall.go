package planning

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"hostler/agent/declare"
	"hostler/agent/networkprovisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/firewall"
	"hostler/internal/run"
)

// firewallWarnings warns of NICs that are to join a bridge and that a rule of the
// host's own firewall names. It reads the rules only if a NIC is to join.
func (p Planner) firewallWarnings(ctx context.Context, objects []declare.Planned, scope map[string]bool) (warnings []string) {
	joins, err := p.joining(ctx, objects, scope)
	var rules firewall.Ruleset
	if err == nil && len(joins) > 0 {
		rules, err = p.readFirewall(ctx)
	}
	if err != nil {
		p.Log.Debug("Cannot check the host's firewall for names of NICs.", "error", err)
		return nil
	}
	for _, j := range joins {
		if tables := rules.Naming(j.nic); len(tables) > 0 {
			warnings = append(warnings, fmt.Sprintf(
				"%s: rules of the nftables table %s name %s and no longer match once its packets come by %s; name %[4]s there too, and apply with --confirm",
				j.object, strings.Join(tables, " and of "), j.nic, j.bridge))
		}
	}
	return slices.Clip(warnings)
}

// joining is a NIC that is to join the bridge of a network.
type joining struct{ object, nic, bridge string }

// joining returns the NICs of networks in scope that are not under their bridge. It
// looks at the host only if a network has NICs.
func (p Planner) joining(ctx context.Context, objects []declare.Planned, scope map[string]bool) (joins []joining, err error) {
	for _, o := range objects {
		var r spec.NetworkRecord
		object := o.After.Kind + "/" + o.After.Name
		if o.After.Kind != spec.KindNetwork || !scope[object] || o.After.Life != "" && o.After.Life != state.Alive || json.Unmarshal(o.After.Spec, &r) != nil {
			continue
		}
		for _, nic := range r.Network.Interfaces {
			joins = append(joins, joining{object, nic, r.Network.Bridge})
		}
	}
	if len(joins) == 0 {
		return nil, nil
	}
	links, err := hostnet.Open(hostnet.Options{})
	if err != nil {
		return nil, err
	}
	defer links.Close()
	host, err := links.Observe(ctx)
	return slices.DeleteFunc(joins, func(j joining) bool {
		l, there := host.Link(j.nic)
		return !there || l.Master == j.bridge
	}), err
}

func (p Planner) readFirewall(ctx context.Context) (rules firewall.Ruleset, err error) {
	record, err := p.Host(ctx)
	if err != nil {
		return rules, err
	}
	f, err := firewall.New(networkprovisioner.ConfigOf(record).Namespace, run.Host{}, p.Log)
	if err != nil {
		return rules, err
	}
	return f.Observe(ctx)
}
