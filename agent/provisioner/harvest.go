package provisioner

import (
	"encoding/json"
	"slices"

	"hostler/agent/spec"
	"hostler/containerbroker"
)

// unknown plans for stamped instances without a record.
func (w *world) unknown() []Step {
	if !w.policy.Harvest.unknown() || w.policy.Lineage.Old || slices.ContainsFunc(w.all, w.policy.owner().Newer) {
		return nil // an older copy lacks the records of living machines
	}
	var steps []Step
	for _, inst := range Unknown(w.all, w.records, w.policy.owner()) {
		if w.policy.Busy[inst.Name] {
			continue
		}
		steps = append(steps, Step{
			Action: ActionHarvest, Machine: inst.Name, UID: inst.Stamp.UID, Impact: containerbroker.ImpactDestroy,
			Instance: &inst, Detail: "bears our stamp and nothing declares it (harvest " + string(w.policy.Harvest) + ")",
		})
	}
	return steps
}

// Unknown returns the instances of this store whose uid is in no record. A
// copy that a person made of one bears its stamp and another name: it is
// theirs.
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
