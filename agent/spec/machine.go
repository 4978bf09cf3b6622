package spec

import (
	"maps"
	"slices"
)

// WantsRunning reports whether the machine should run: true unless the
// declaration has running: false.
func (m Machine) WantsRunning() bool { return m.Running == nil || *m.Running }

// WantsAutostart reports whether the machine should start with the host: true
// unless the declaration has autostart: false.
func (m Machine) WantsAutostart() bool { return m.Autostart == nil || *m.Autostart }

// Len returns the number of objects.
func (d Declaration) Len() int {
	return len(d.Machines) + len(d.Networks) + len(d.Volumes) + len(d.Filesystems)
}

// Objects lists the declared objects as KIND/NAME, sorted.
func (d Declaration) Objects() []string {
	var objects []string
	for name := range maps.Keys(d.Machines) {
		objects = append(objects, KindMachine+"/"+name)
	}
	for name := range maps.Keys(d.Volumes) {
		objects = append(objects, KindVolume+"/"+name)
	}
	for name := range maps.Keys(d.Filesystems) {
		objects = append(objects, KindFilesystem+"/"+name)
	}
	for name := range maps.Keys(d.Networks) {
		objects = append(objects, KindNetwork+"/"+name)
	}
	slices.Sort(objects)
	return objects
}
