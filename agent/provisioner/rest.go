package provisioner

import "hostler/containerbroker"

// Rest marks the machines that ran when the host went down and have autostart
// false. They stay stopped until the user starts them or applies a changed
// declaration.
func Rest(desired []Desired, instances []containerbroker.Instance, owner Owner, boot string) {
	byUID := mine(desired, instances, owner)
	for i := range desired {
		d := &desired[i]
		inst := byUID[d.UID]
		last := d.Status.Boot
		d.Resting = boot != "" && last != "" && last != boot && d.wantsRunning() && !d.Record.Machine.WantsAutostart() &&
			d.Status.ObservedGeneration >= d.Generation && inst != nil && inst.Status == containerbroker.StatusStopped
	}
}
