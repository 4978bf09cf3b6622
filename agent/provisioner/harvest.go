package provisioner

import (
	"encoding/json"
	"slices"

	"hostler/agent/spec"
	"hostler/containerbroker"
)

// unknown plans the deletion of orphans.
func (p *planner) unknown() []Step {
	if !p.policy.Harvest.unknown() || p.policy.Lineage.Old || slices.ContainsFunc(p.all, p.policy.owner().Newer) {
		return nil // an older copy of the store lacks the records of later machines
	}
	var steps []Step
	for _, inst := range Unknown(p.all, p.records, p.policy.owner()) {
		if p.policy.Busy[inst.Name] {
			continue
		}
		steps = append(steps, Step{
			Action: ActionHarvest, Machine: inst.Name, UID: inst.Stamp.UID, Impact: containerbroker.ImpactDestroy,
			Instance: &inst, Detail: "has this agent's stamp and no declaration (harvest " + string(p.policy.Harvest) + ")",
		})
	}
	return steps
}

// Unknown returns the orphans: instances of this store whose uid has no record.
// A copy that a user made of an instance bears its stamp under another name; it
// belongs to the user and is left out.
func Unknown(instances []containerbroker.Instance, records map[string]bool, owner Owner) []containerbroker.Instance {
	var unknown []containerbroker.Instance
	for _, inst := range instances {
		origin, ours := owner.origin(inst)
		if ours && origin == spec.OriginOurs && !records[inst.Stamp.UID] && !isCopy(inst) {
			unknown = append(unknown, inst)
		}
	}
	return unknown
}

func isCopy(inst containerbroker.Instance) bool {
	var stamped struct {
		Name string `json:"name"`
	}
	return json.Unmarshal([]byte(inst.Stamp.Record), &stamped) == nil && stamped.Name != "" && stamped.Name != inst.Name
}
