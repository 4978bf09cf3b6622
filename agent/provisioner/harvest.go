package provisioner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// unknown plans the deletion of orphans, if the harvest mode covers orphans. It
// leaves moved instances; see Orphans.
func (p *planner) unknown() []Step {
	if !p.policy.Harvest.unknown() {
		return nil
	}
	var steps []Step
	orphans, _ := Orphans(p.all, p.records, p.policy.owner(), p.policy.Type)
	for _, inst := range orphans {
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

// harvestStop is the time that an orphan has to shut down.
const harvestStop = time.Second

// harvest deletes an orphan. It reads the records again, because the user may
// have adopted the instance since the pass read the records, and stops the instance
// before, because a stop may take minutes. The store shows only the records of this
// type, so harvest compares the stamped type too.
func (o *operation) harvest(ctx context.Context, s Step) error {
	if t := MadeAs(*s.Instance, o.w.Type); t != "" {
		return fault.New(fault.Conflict, "cannot delete instance %q: it was made for a machine of type %s", s.Instance.Name, t)
	}
	if err := o.enter(ctx); err != nil {
		return err
	}
	if s.Instance.Status != containerbroker.StatusStopped {
		// A half-made or broken instance cannot be stopped but may still be deleted.
		limited, cancel := context.WithTimeout(ctx, opTimeout)
		_ = o.w.Broker.SetPower(limited, s.Instance.Name, containerbroker.PowerStop, harvestStop)
		cancel()
	}
	machines, _, err := o.w.Store.List(ctx, spec.KindMachine)
	if err != nil {
		return fmt.Errorf("cannot read the declared machines: %w", err)
	}
	if slices.ContainsFunc(machines, func(m state.Object) bool { return m.UID == s.UID }) {
		return errOvertaken
	}
	if err := o.remove(ctx, *s.Instance.Stamp, s.Instance.Name); err != nil {
		return err
	}
	o.event(ctx, state.LevelInfo, "Harvested", s.Detail)
	return nil
}

// Orphans returns the instances of type t with this store's stamp whose uid has
// no record of that type. unknown are those that a harvest may delete. moved are
// those that were made for a machine of another type, e.g. by an import of LXD's
// containers into Incus. Such an instance may hold the data of a declared
// machine, so it is reported and never deleted. Orphans leaves out a copy that a
// user made of an instance, because the copy belongs to the user. A copy has the
// stamp of the instance but another name.
func Orphans(instances []containerbroker.Instance, records map[string]bool, owner Owner, t spec.ContainerType) (unknown, moved []containerbroker.Instance) {
	for _, inst := range instances {
		origin, ours := owner.origin(inst)
		if !ours || origin == spec.OriginAnother || records[inst.Stamp.UID] || isCopy(inst) {
			continue
		}
		switch {
		case MadeAs(inst, t) != "":
			moved = append(moved, inst)
		case origin == spec.OriginOurs:
			unknown = append(unknown, inst)
		}
	}
	return unknown, moved
}

func isCopy(inst containerbroker.Instance) bool {
	name, _ := madeFor(inst)
	return name != "" && name != inst.Name
}

// MadeAs returns the container type of the machine that the stamped instance
// was made for, if it is not t. Otherwise, and if the stamp names no type, MadeAs
// returns "".
func MadeAs(inst containerbroker.Instance, t spec.ContainerType) spec.ContainerType {
	if _, made := madeFor(inst); made != t {
		return made
	}
	return ""
}

// madeFor returns the name and the type that the instance's stamp records, or
// "". It reads nothing else, because a later version may have stamped the rest.
func madeFor(inst containerbroker.Instance) (name string, t spec.ContainerType) {
	var stamped struct {
		Name    string `json:"name"`
		Machine struct {
			Type spec.ContainerType `json:"type"`
		} `json:"machine"`
	}
	_ = json.Unmarshal([]byte(inst.Stamp.Record), &stamped) // an unreadable record names nothing
	return stamped.Name, stamped.Machine.Type
}
