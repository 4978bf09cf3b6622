package provisioner

import "hostler/containerbroker"

// mine returns the instance of each machine, by uid. A copy that a person made
// of one bears its stamp too: it is told by its name, and by being younger
// than the machine's own, and it is nobody's.
func mine(desired []Desired, instances []containerbroker.Instance, namespace string) map[string]*containerbroker.Instance {
	records := make(map[string]*Desired, len(desired))
	for i := range desired {
		records[desired[i].UID] = &desired[i]
	}
	byUID := make(map[string]*containerbroker.Instance, len(instances))
	for i := range instances {
		inst := &instances[i]
		if inst.Stamp == nil || inst.Stamp.Namespace != namespace {
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
