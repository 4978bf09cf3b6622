package provisioner

import (
	"fmt"
	"slices"

	"hostler/agent/spec"
	"hostler/containerbroker"
)

// inVain returns a held step if a restart for these changes did not make them.
// Without it, the instance would restart for ever.
func inVain(d Desired, inst *containerbroker.Instance, restart []containerbroker.Change) (Step, bool) {
	made := d.Status.RestartedFor
	if made == nil || made.Generation != d.Generation || d.Record.RestartRequest > d.Status.RestartsDone ||
		inst.Status != containerbroker.StatusRunning || !anyOf(made, restart) || !d.allows(containerbroker.ImpactRestart) {
		return Step{}, false
	}
	return Step{
		Action: ActionConflict, Machine: d.Name, UID: d.UID, Impact: containerbroker.ImpactNone, Changes: restart, Instance: inst,
		Held: fmt.Sprintf("a restart did not change %s (%s): declare the present value, or change it with the hypervisor's tools; "+
			"`hostler retry machine/%s` restarts it again", fields(restart), describe(restart), d.Name),
	}, true
}

// restartedFor returns the note that the instance was restarted for changes.
func restartedFor(d Desired, changes []containerbroker.Change) *spec.RestartedFor {
	if len(changes) == 0 {
		return d.Status.RestartedFor
	}
	made := &spec.RestartedFor{Generation: d.Generation}
	for _, c := range changes {
		made.Fields = append(made.Fields, c.Field)
	}
	return made
}

// stillToBeMade returns the note while any of its changes is still missing,
// else nil. A later change by hand then leads to a restart again.
func stillToBeMade(d Desired, inst *containerbroker.Instance, made *spec.RestartedFor, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) *spec.RestartedFor {
	if made == nil || inst == nil || len(d.Waiting) > 0 {
		return made
	}
	left := slices.DeleteFunc(diff(d.Machine, *inst), func(c containerbroker.Change) bool { return c.Impact != containerbroker.ImpactRestart })
	if !anyOf(made, left) {
		return nil
	}
	return made
}

// anyOf says whether the note contains one of the changes.
func anyOf(made *spec.RestartedFor, changes []containerbroker.Change) bool {
	return slices.ContainsFunc(changes, func(c containerbroker.Change) bool { return slices.Contains(made.Fields, c.Field) })
}
