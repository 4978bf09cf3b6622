package provisioner

import (
	"hostler/agent/spec"
	"hostler/containerbroker"
)

// Owner recognises an agent's instances by their stamps.
type Owner struct {
	Namespace string
	Lineage   spec.Lineage
}

// origin returns the origin of an instance's stamp. ours is false for instances
// without a stamp or with another namespace.
func (o Owner) origin(i containerbroker.Instance) (origin spec.Origin, ours bool) {
	if i.Stamp == nil || i.Stamp.Namespace != o.Namespace {
		return 0, false
	}
	return o.Lineage.Of(i.Stamp.Store), true
}

// Owns reports whether the instance has the stamp of this store or of a former
// store of this agent.
func (o Owner) Owns(i containerbroker.Instance) bool {
	origin, ours := o.origin(i)
	return ours && origin != spec.OriginAnother
}

// Newer reports whether the instance's stamp proves that the store is an older
// copy.
func (o Owner) Newer(i containerbroker.Instance) bool {
	origin, ours := o.origin(i)
	return ours && origin == spec.OriginNewer
}

// OfAnother returns the instances with this namespace and another store's
// stamp. The agent does not touch these instances until `hostler adopt`.
func (o Owner) OfAnother(instances []containerbroker.Instance) []containerbroker.Instance {
	var found []containerbroker.Instance
	for _, i := range instances {
		if origin, ours := o.origin(i); ours && origin == spec.OriginAnother {
			found = append(found, i)
		}
	}
	return found
}

// ownInstances returns the instance of each machine, by uid. It leaves out a copy
// that a user made of an instance. The copy has the same stamp, but another name,
// and is younger. The name alone says whose an unreadable instance is; what it does
// is unknown, so it may use all that it did.
func ownInstances(desired []Desired, instances []containerbroker.Instance, owner Owner) map[string]*containerbroker.Instance {
	records := make(map[string]*Desired, len(desired))
	for i := range desired {
		records[desired[i].UID] = &desired[i]
	}
	byUID := make(map[string]*containerbroker.Instance, len(instances))
	for i := range instances {
		inst := &instances[i]
		if inst.Unreadable {
			for _, d := range records {
				if made := d.Status.Instance; made != nil && d.instanceName() == inst.Name {
					unknown := *inst
					unknown.Status = containerbroker.StatusUnknown
					unknown.Stamp = &containerbroker.Stamp{Namespace: owner.Namespace, UID: d.UID, Token: made.Token}
					byUID[d.UID] = &unknown
				}
			}
			continue
		}
		if !owner.Owns(*inst) {
			continue
		}
		d := records[inst.Stamp.UID]
		if d != nil && inst.Name != d.instanceName() {
			made := d.Status.Instance
			if byUID[inst.Stamp.UID] != nil || made != nil && inst.Created.After(made.Created) {
				continue
			}
		}
		byUID[inst.Stamp.UID] = inst
	}
	return byUID
}

// machineOf returns the name of the machine that has the instance, or "".
func (p *planner) machineOf(inst *containerbroker.Instance) string {
	for i := range p.desired {
		if d := &p.desired[i]; inst.Stamp != nil && d.UID == inst.Stamp.UID && d.instanceName() == inst.Name {
			return d.Name
		}
	}
	return ""
}
