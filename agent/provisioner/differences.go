package provisioner

import (
	"slices"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/internal/oneline"
)

// differences sorts the differences between an instance and its declaration by
// their impact. A change that needs a restart counts as live if the instance is
// stopped or is about to be stopped.
func (p *planner) differences(d *Desired, inst *containerbroker.Instance) (live, restart, recreate []containerbroker.Change) {
	for _, c := range separating(d, inst, p.policy.Diff) {
		switch {
		case c.Impact == containerbroker.ImpactRecreate:
			recreate = append(recreate, c)
		case c.Impact == containerbroker.ImpactRestart && inst.Status != containerbroker.StatusStopped && d.wantsRunning():
			restart = append(restart, c)
		default:
			live = append(live, c)
		}
	}
	return live, restart, recreate
}

// separating returns the differences between the instance and its declaration.
// While the machine waits for an attachment, it returns only those that precede()
// permits.
func separating(d *Desired, inst *containerbroker.Instance, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) []containerbroker.Change {
	changes := diff(d.Machine, *inst)
	if len(d.Waiting) > 0 {
		return slices.DeleteFunc(changes, func(c containerbroker.Change) bool { return !precede(d, c) })
	}
	if made := d.Status.Instance; made != nil && made.Image != "" && made.Image != d.Record.Machine.Image {
		c := containerbroker.Change{
			Field: "image", From: oneline.Address(made.Image), To: oneline.Address(d.Record.Machine.Image), Impact: containerbroker.ImpactRecreate,
			Reason: "an image takes effect only when the instance is created",
		}
		if c.From == c.To {
			c.To = "(changed)" // the user or the query, which may be secret
		}
		changes = append(changes, c)
	}
	return changes
}

// precede reports whether a change need not wait for the missing attachments of the
// machine: a live change of a plain setting, and the removal of a disk that the
// machine no longer declares. The missing storage may wait for such a disk, e.g. if two
// machines exchange their volumes.
func precede(d *Desired, c containerbroker.Change) bool {
	if _, is := containerbroker.DiskOf(c.Field); is {
		return !slices.Contains(spec.Objects(d.Record.Machine.Storage), objectOf(c))
	}
	plain := []string{containerbroker.FieldAutostart, containerbroker.FieldCPUs, containerbroker.FieldMemory, containerbroker.FieldRootDisk}
	return c.Impact == containerbroker.ImpactLive && slices.Contains(plain, c.Field)
}

// useConsents notes that the consents to restarts and recreates are used up if the
// instance needs none to match its declaration. It notes nothing if this is unknown,
// e.g. while storage is missing or a network changes.
func useConsents(d *Desired, inst *containerbroker.Instance, status *spec.MachineStatus, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) {
	r := &d.Record
	if status.ConsentsUsed >= r.Consents && status.RestartConsentsUsed >= r.RestartConsents ||
		inst == nil || d.Status.Instance == nil || len(d.Waiting) > 0 || d.Unsettled {
		return
	}
	changes := separating(d, inst, diff)
	needs := func(i containerbroker.Impact) bool {
		return slices.ContainsFunc(changes, func(c containerbroker.Change) bool { return c.Impact == i })
	}
	if !needs(containerbroker.ImpactRecreate) {
		status.ConsentsUsed = r.Consents
	}
	if !needs(containerbroker.ImpactRestart) {
		status.RestartConsentsUsed = r.RestartConsents
	}
}
