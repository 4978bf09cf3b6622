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

// origin returns the origin of an instance's mark. ours is false for instances
// without a stamp or with another namespace.
func (o Owner) origin(i containerbroker.Instance) (origin spec.Origin, ours bool) {
	if i.Stamp == nil || i.Stamp.Namespace != o.Namespace {
		return 0, false
	}
	return o.Lineage.Of(i.Stamp.Store), true
}

// Owns says whether this store or a former store stamped the instance.
func (o Owner) Owns(i containerbroker.Instance) bool {
	origin, ours := o.origin(i)
	return ours && origin != spec.OriginAnother
}

// Newer says whether an instance proves that the store is an older copy.
func (o Owner) Newer(i containerbroker.Instance) bool {
	origin, ours := o.origin(i)
	return ours && origin == spec.OriginNewer
}

// OfAnother returns the instances of the namespace with another store's stamp.
// The agent leaves them alone until `hostler adopt`.
func (o Owner) OfAnother(instances []containerbroker.Instance) []containerbroker.Instance {
	var found []containerbroker.Instance
	for _, i := range instances {
		if origin, ours := o.origin(i); ours && origin == spec.OriginAnother {
			found = append(found, i)
		}
	}
	return found
}

// ownInstances returns the instance of each machine, by uid. It leaves out copies that
// a user made of an instance: a copy bears the same stamp, but has another name
// and is younger than the instance.
func ownInstances(desired []Desired, instances []containerbroker.Instance, owner Owner) map[string]*containerbroker.Instance {
	records := make(map[string]*Desired, len(desired))
	for i := range desired {
		records[desired[i].UID] = &desired[i]
	}
	byUID := make(map[string]*containerbroker.Instance, len(instances))
	for i := range instances {
		inst := &instances[i]
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
