package provisioner

import "hostler/containerbroker"

// unfinished plans for an instance whose create has no recorded end. unfinished
// is true if the create goes on or was cut short. While the create goes on,
// there are no steps. If the create was cut short, the step is a recreate. This
// loses no data, since the instance has never run.
func (p *planner) unfinished(d *Desired, inst *containerbroker.Instance) (steps []Step, unfinished bool) {
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
// is recorded as finished counts as stopped, even if the hypervisor reports it
// as half made. So does an adopted instance, because the agent did not make its
// data and cannot make the data again.
func known(d *Desired, inst *containerbroker.Instance) *containerbroker.Instance {
	if inst == nil || inst.Status != containerbroker.StatusHalfMade || d.Status.Instance == nil && !d.Record.IsAdopted(inst.Stamp.Token) {
		return inst
	}
	whole := *inst
	whole.Status = containerbroker.StatusStopped
	return &whole
}
