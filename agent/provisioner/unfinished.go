package provisioner

import "hostler/containerbroker"

// unfinished plans for an instance whose create by an earlier attempt has no
// recorded end. While the create goes on, it plans nothing. If the create was
// cut short, it plans a recreate; nothing is lost, since the instance has never
// run.
func (p *planner) unfinished(d Desired, inst *containerbroker.Instance) (steps []Step, unfinished bool) {
	if d.Status.Instance != nil {
		return nil, false
	}
	switch known(d, inst).Status {
	case containerbroker.StatusBusy, containerbroker.StatusUnknown:
		return nil, true
	case containerbroker.StatusHalfMade:
		open, after := p.gate(d)
		if !open {
			return nil, true
		}
		s := d.step(ActionRecreate, inst, "made again: its create was cut short")
		s.Impact, s.After = containerbroker.ImpactNone, after
		return []Step{s}, true
	}
	return nil, false
}

// known returns the instance with a corrected status. An instance whose create
// is recorded as finished counts as whole, even if the hypervisor reports it as
// half made. An adopted instance does too: the agent did not make its data and
// cannot make it again.
func known(d Desired, inst *containerbroker.Instance) *containerbroker.Instance {
	if inst == nil || inst.Status != containerbroker.StatusHalfMade || d.Status.Instance == nil && !d.Record.Adopted {
		return inst
	}
	whole := *inst
	whole.Status = containerbroker.StatusStopped
	return &whole
}
