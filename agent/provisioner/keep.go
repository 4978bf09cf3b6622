package provisioner

import (
	"slices"

	"hostler/agent/reconcile"
	"hostler/containerbroker"
)

// start plans the start of an instance; one that keeps dying is given its
// growing pauses.
func (w *world) start(d Desired, inst *containerbroker.Instance) Step {
	s := Step{
		Action: ActionStart, Machine: d.Name, UID: d.UID, Impact: containerbroker.ImpactNone,
		Detail: "declared as running", Instance: inst,
	}
	if at := d.Status.StartedAt; at != nil {
		delay := d.deathPause()
		if due := at.Add(delay); reconcile.Pending(due, w.policy.Now, delay) && !w.nudged(d) {
			s.After = due
		}
	}
	return s
}

// kept plans for a machine whose last failure waits for a person. It is kept
// running all the same, unless it is its start that failed: only what it is
// given is made right before, since what it had may be another's since.
func (w *world) kept(d Desired, inst *containerbroker.Instance) []Step {
	steps := w.held(d, inst)
	if d.Status.Instance == nil || d.Status.StartFailed || inst.Status != containerbroker.StatusStopped || !d.wantsRunning() || len(d.Waiting) > 0 {
		return steps
	}
	start := w.start(d, inst)
	live, _, _ := w.differences(d, inst)
	given := slices.DeleteFunc(live, func(c containerbroker.Change) bool {
		_, nic := containerbroker.NICOf(c.Field)
		_, disk := containerbroker.DiskOf(c.Field)
		return !nic && !disk && c.Field != containerbroker.FieldNetworkConfig
	})
	if len(given) > 0 {
		steps = append(steps, Step{
			Action: ActionUpdate, Machine: d.Name, UID: d.UID, Impact: containerbroker.ImpactLive, Changes: given, Instance: inst,
			Detail: "changed as it is: " + fields(given), After: start.After,
		})
	}
	return append(steps, start)
}
