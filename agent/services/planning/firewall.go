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
// host's own firewall names. It observes the host only if a NIC is to join.
func (p Planner) firewallWarnings(ctx context.Context, objects []declare.Planned, scope map[string]bool) (warnings []string) {
	var host hostnet.Observed
	var rules firewall.Ruleset
	looked := false
	for _, o := range objects {
		var r spec.NetworkRecord
		object := o.After.Kind + "/" + o.After.Name
		if o.After.Kind != spec.KindNetwork || !scope[object] || o.After.Life != "" && o.After.Life != state.Alive ||
			json.Unmarshal(o.After.Spec, &r) != nil || len(r.Network.Interfaces) == 0 {
			continue
		}
		if !looked {
			var err error
			if host, rules, err = p.lookAtFirewall(ctx); err != nil {
				p.Log.Debug("Cannot check the host's firewall for names of NICs.", "error", err)
				return nil
			}
			looked = true
		}
		for _, nic := range r.Network.Interfaces {
			l, there := host.Link(nic)
			tables := rules.Naming(nic)
			if there && l.Master != r.Network.Bridge && len(tables) > 0 {
				warnings = append(warnings, fmt.Sprintf(
					"%s: rules of the nftables table %s name %s and no longer match once its packets come by %s; name %[4]s there too, and apply with --confirm",
					object, strings.Join(tables, " and of "), nic, r.Network.Bridge))
			}
		}
	}
	return slices.Clip(warnings)
}

func (p Planner) lookAtFirewall(ctx context.Context) (o hostnet.Observed, rules firewall.Ruleset, err error) {
	record, err := p.Host(ctx)
	if err != nil {
		return o, rules, err
	}
	links, err := hostnet.Open(hostnet.Options{})
	if err != nil {
		return o, rules, err
	}
	defer links.Close()
	if o, err = links.Observe(ctx); err != nil {
		return o, rules, err
	}
	f, err := firewall.New(networkprovisioner.ConfigOf(record).Namespace, run.Host{}, p.Log)
	if err != nil {
		return o, rules, err
	}
	rules, err = f.Observe(ctx)
	return o, rules, err
}
