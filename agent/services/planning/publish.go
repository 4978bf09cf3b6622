package planning

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/containerbroker"
)

// publishing returns the steps that show changes of the firewall for machines that are
// declared already, by the machine's name. The network worker makes these changes without
// a step of its own.
func publishing(machines []declare.Planned) map[string]client.Step {
	steps := map[string]client.Step{}
	for _, m := range machines {
		if m.Before == nil || m.After.Kind != spec.KindMachine {
			continue
		}
		var before, after spec.MachineRecord
		if json.Unmarshal(m.Before.Spec, &before) != nil || json.Unmarshal(m.After.Spec, &after) != nil {
			continue
		}
		var changes []client.Change
		for field, text := range map[string]func(spec.Machine) string{"publish": published, "router": routers} {
			if from, to := text(before.Machine), text(after.Machine); from != to {
				changes = append(changes, client.Change{Field: field, From: from, To: to, Impact: containerbroker.ImpactLive})
			}
		}
		if len(changes) == 0 {
			continue
		}
		slices.SortFunc(changes, func(a, b client.Change) int { return strings.Compare(a.Field, b.Field) })
		steps[m.After.Name] = client.Step{
			Object: spec.KindMachine + "/" + m.After.Name, Action: "update", Impact: containerbroker.ImpactLive, Detail: "changes the host's firewall for it", Changes: changes,
		}
	}
	return steps
}

// routers names the interfaces that may forward packets of other hosts.
func routers(m spec.Machine) string {
	var names []string
	for name, nic := range m.Networks {
		if nic.Router {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// published describes the published ports of a machine, e.g. "tcp 8080 to 80 from
// 10.0.0.0/8".
func published(m spec.Machine) string {
	var ports []string
	for _, p := range m.Publish {
		port := fmt.Sprintf("%s %d to %d", p.Protocol, p.HostPort, p.Port)
		if len(p.Sources) > 0 {
			sources := slices.Sorted(slices.Values(p.Sources))
			port += " from " + strings.Join(slices.Compact(sources), " ")
		}
		ports = append(ports, port)
	}
	slices.Sort(ports)
	return strings.Join(ports, ", ")
}
