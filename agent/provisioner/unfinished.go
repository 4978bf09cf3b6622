package provisioner

import "hostler/containerbroker"

// unfinished plans for an instance that an earlier attempt began and whose
// create was never seen to end: while it goes on, nothing; where it was cut
// short, the instance is made again. It has never run, so that nothing is
// lost with it.
func (w *world) unfinished(d Desired, inst *containerbroker.Instance) (steps []Step, unfinished bool) {
	if d.Status.Instance != nil {
		return nil, false
	}
	switch known(d, inst).Status {
	case containerbroker.StatusBusy, containerbroker.StatusUnknown:
		return nil, true
	case containerbroker.StatusHalfMade:
		open, after := w.gate(d)
		if !open {
			return nil, true
		}
		return []Step{{
			Action: ActionRecreate, Machine: d.Name, UID: d.UID, Impact: containerbroker.ImpactNone, Instance: inst, After: after,
			Detail: "made again: its create was cut short",
		}}, true
	}
	return nil, false
}

// known is the instance as it is taken: one whose create was seen to end is
// whole, whatever it looks like to the hypervisor, and so is one that was
// adopted, whose data the agent did not make and cannot make again.
func known(d Desired, inst *containerbroker.Instance) *containerbroker.Instance {
	if inst == nil || inst.Status != containerbroker.StatusHalfMade || d.Status.Instance == nil && !d.Record.Adopted {
		return inst
	}
	whole := *inst
	whole.Status = containerbroker.StatusStopped
	return &whole
}
