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

// publishing returns the steps that show which ports of the host lead to other places
// than before, by the machine's name. The network worker changes the firewall without
// a step of its own.
func publishing(machines []declare.Planned) map[string]client.Step {
	steps := map[string]client.Step{}
	for _, m := range machines {
		if m.Before == nil || m.After.Kind != spec.KindMachine {
			continue
		}
		from, to := publishedOf(m.Before.Spec), publishedOf(m.After.Spec)
		if from == to {
			continue
		}
		steps[m.After.Name] = client.Step{
			Object: spec.KindMachine + "/" + m.After.Name, Action: "update", Impact: containerbroker.ImpactLive, Detail: "changes the ports of the host that lead to it",
			Changes: []client.Change{{Field: "publish", From: from, To: to, Impact: containerbroker.ImpactLive}},
		}
	}
	return steps
}

// publishedOf describes the published ports of a machine's record, e.g.
// "tcp 8080 to 80 from 10.0.0.0/8".
func publishedOf(record []byte) string {
	var r spec.MachineRecord
	if json.Unmarshal(record, &r) != nil {
		return ""
	}
	var ports []string
	for _, p := range r.Machine.Publish {
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
