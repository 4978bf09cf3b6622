package provisioner

import (
	"encoding/json"

	"hostler/containerbroker"
)

// unknown plans for stamped instances without a record.
func (w *world) unknown() []Step {
	if !w.policy.Harvest.unknown() {
		return nil
	}
	var steps []Step
	for _, inst := range Unknown(w.all, w.records, w.policy.Namespace) {
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

// Unknown returns the instances of the namespace whose uid is in no record. A
// copy that a person made of one bears its stamp and another name: it is
// theirs.
func Unknown(instances []containerbroker.Instance, records map[string]bool, namespace string) []containerbroker.Instance {
	var unknown []containerbroker.Instance
	for _, inst := range instances {
		if inst.Stamp != nil && inst.Stamp.Namespace == namespace && !records[inst.Stamp.UID] && !isCopy(inst) {
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
