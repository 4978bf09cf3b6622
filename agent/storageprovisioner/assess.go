package storageprovisioner

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// The condition types of volumes and filesystems.
const (
	// conditionFailed is true if an action failed. Its reason is the name of
	// the action, its message is the error.
	conditionFailed = "Failed"
	// conditionUpToDate is false while a step is held for the operator's
	// decision.
	conditionUpToDate = "UpToDate"
)

// delays holds the delays between retries: 30 s, doubling up to 30 min.
var delays = reconcile.Backoff{Base: 30 * time.Second, Max: 30 * time.Minute}

// assess returns the status of every entity, in the order of the entities. It
// derives them from the planner's input and its steps.
func (p *planner) assess(steps []Step) []spec.StorageStatus {
	own, ofMachines := map[string][]Step{}, map[string]Step{}
	for _, s := range steps {
		key := s.Kind + "/" + s.Name
		if s.Machine == "" {
			own[key] = append(own[key], s)
		} else if before, ok := ofMachines[key+"/"+s.Machine]; !ok || before.Action == ActionHide {
			ofMachines[key+"/"+s.Machine] = s
		}
	}
	statuses := make([]spec.StorageStatus, len(p.entities))
	for i := range p.entities {
		e := &p.entities[i]
		s := e.Status
		s.Conditions = slices.Clone(s.Conditions)
		if cause := p.observed.Blind[e.Source]; cause != nil {
			s.Message = fmt.Sprintf("cannot be looked at: %v", cause)
			statuses[i] = s
			continue
		}
		caughtUp(&s, e, own[e.key()], func(machine string) bool { _, ok := ofMachines[e.key()+"/"+machine]; return ok })
		p.facts(&s, e)
		p.state(&s, e, own[e.key()])
		s.Attachments = p.attachments(&s, e, ofMachines)
		upToDate(&s, own[e.key()], p.policy.Now)
		statuses[i] = s
	}
	return statuses
}

// caughtUp drops failures of actions that are no longer planned. It sets the
// observed generation if all remaining steps are held.
func caughtUp(s *spec.StorageStatus, e *Entity, steps []Step, ofMachine func(string) bool) {
	forget(s, func(failed Action) bool {
		return s.ObservedGeneration >= e.Generation && slices.ContainsFunc(steps, func(step Step) bool { return step.Action == failed })
	})
	busy := slices.ContainsFunc(steps, func(step Step) bool { return step.Held == "" })
	for machine := range s.Attachments {
		busy = busy || ofMachine(machine)
	}
	if !busy {
		e.observed(s)
	}
}

// facts copies the size, device and path of the observed object into the
// status.
func (p *planner) facts(s *spec.StorageStatus, e *Entity) {
	s.Device, s.Path = "", ""
	if e.Kind == spec.KindVolume {
		v := p.volumesSeen[e.Name]
		if v == nil {
			return
		}
		s.Created, s.Size = s.Created || v.Problem == "", v.Size
		if d, ok := device(v); ok {
			s.Device = d.Device
		}
		return
	}
	f := p.seen[e.Name]
	if f == nil {
		return
	}
	s.Created = s.Created || f.Problem == ""
	if f.Size != 0 {
		s.Size = f.Size
	}
	if m, ok := p.mounted(e); ok {
		s.Path = m.Path
		if e.Filesystem.Volume != "" {
			s.Device = m.Device
		}
	}
}

// problem returns the defect that the source reports for the entity's object on
// the host, or "" if there is none.
func (p *planner) problem(e *Entity) string {
	if v := p.volumesSeen[e.Name]; e.Kind == spec.KindVolume && v != nil {
		return v.Problem
	}
	if f := p.seen[e.Name]; e.Kind == spec.KindFilesystem && f != nil {
		return f.Problem
	}
	return ""
}

// state sets State and Message.
func (p *planner) state(s *spec.StorageStatus, e *Entity, steps []Step) {
	s.Message = ""
	if failed := failedAction(*s); failed != "" {
		setFailed(s, failed)
		return
	}
	if e.Life == state.Alive && s.Created {
		if problem := p.problem(e); problem != "" {
			s.State, s.Message = spec.StorageError, problem
			return
		}
	}
	s.State = spec.StorageDetached
	if s.Device != "" && e.Kind == spec.KindVolume || s.Path != "" {
		s.State = spec.StorageAttached
	}
	// Sort the steps in the order in which they are carried out, because the
	// status shows the first.
	slices.SortStableFunc(steps, func(a, b Step) int { return rank(a.Action) - rank(b.Action) })
	for _, step := range steps {
		switch {
		case step.Held != "" && (step.Action == ActionCreate && !p.thereAtAll(e) || step.Action == ActionAttach):
			s.State, s.Message = spec.StorageError, step.Held
			return
		case step.Held != "":
			s.Message = step.Held
			continue
		case step.Waiting != "":
			s.Message = "waiting for " + step.Waiting
		}
		s.State = stateOf(step.Action, s.State)
		if step.Action == ActionCreate && step.Waiting != "" {
			s.State = spec.StoragePending
		}
		if step.Action == ActionGrow {
			s.Message = "growing " + step.Detail
		}
		return
	}
}

// rank returns an action's place in the order of an entity's actions.
func rank(a Action) int {
	return slices.Index([]Action{ActionCreate, ActionAdopt, ActionDetach, ActionAttach, ActionRemount, ActionGrow, ActionDestroy, ActionRelease, ActionForget}, a)
}

// stateOf returns the state of an entity while an action is carried out. For an
// action without such a state, it returns its second argument.
func stateOf(a Action, otherwise spec.StorageState) spec.StorageState {
	switch a {
	case ActionCreate, ActionAdopt:
		return spec.StorageCreating
	case ActionAttach, ActionShow:
		return spec.StorageAttaching
	case ActionDetach, ActionHide:
		return spec.StorageDetaching
	case ActionDestroy, ActionRelease, ActionForget:
		return spec.StorageDestroying
	}
	return otherwise
}

// setFailed sets State and Message from the recorded failure. After a transient
// failure, State is the state of the failed action, not error.
func setFailed(s *spec.StorageStatus, a Action) {
	s.Message = spec.ConditionOf(s.Conditions, conditionFailed).Message
	s.State = failedState(a, fault.Kind(s.Attempts.ErrorKind), s.State)
}

func failedState(a Action, kind fault.Kind, otherwise spec.StorageState) spec.StorageState {
	switch {
	case kind != fault.Transient && kind != fault.NotReady && a != ActionDestroy:
		return spec.StorageError
	case a == ActionCreate:
		return spec.StoragePending
	}
	return stateOf(a, otherwise)
}

// attachments returns the entity's attachment status for each machine. Source
// is set only while the machine has permission to use the entity.
func (p *planner) attachments(s *spec.StorageStatus, e *Entity, steps map[string]Step) map[string]spec.AttachmentStatus {
	all := map[string]spec.AttachmentStatus{}
	for _, machine := range p.machines(e) {
		r, a := p.relation(e, machine)
		was := s.Attachments[machine]
		now := spec.AttachmentStatus{ReadOnly: a.ReadOnly, Attempts: was.Attempts}
		step, planned := steps[e.key()+"/"+machine]
		switch {
		case r == gone && !planned, r == leaving && a == spec.Attachment{} && p.phase(e, machine) == spec.PhaseOffered:
			continue // without an entry, nothing is offered
		case r == keeps:
			all[machine] = was
			continue
		case r == gone, r == leaving:
			now.State, now.ReadOnly = spec.StorageDetaching, was.ReadOnly
			if r == leaving {
				now.Message = "waiting for machine/" + machine + " to detach"
			}
		case e.Kind == spec.KindVolume:
			p.deviceFor(&now, e, machine)
		case planned:
			now.State = spec.StorageAttaching
			if step.Waiting != "" {
				now.State, now.Message = spec.StoragePending, "waiting for "+step.Waiting
			}
			if step.Held != "" {
				now.State, now.Message = spec.StorageError, step.Held
			}
		default:
			now.State, now.Source, now.Privileged = spec.StorageAttached, p.policy.viewPath(machine, e.Name), p.byName[machine].Privileged
		}
		switch {
		case !planned || s.ObservedGeneration < e.Generation:
			now.Attempts = spec.Attempts{}
		case was.Attempts.ErrorKind != "":
			now.State = failedState(step.Action, fault.Kind(was.Attempts.ErrorKind), now.State)
			now.Message = was.Message
		}
		all[machine] = now
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// deviceFor sets Source to the volume's device if the device has the declared
// mode and no other machine or filesystem can write to it.
func (p *planner) deviceFor(a *spec.AttachmentStatus, e *Entity, machine string) {
	d, attached := device(p.volumesSeen[e.Name])
	refused := p.both(e.Name)
	mounted := slices.ContainsFunc(p.on[e.Name], func(f *Entity) bool { _, is := p.mounted(f); return is })
	switch {
	case refused != "" && (mounted || e.Status.Attachments[machine].Source == ""):
		a.State, a.Message = spec.StorageError, refused
	case attached && p.problem(e) != "":
		a.State, a.Message = spec.StorageError, p.problem(e)
	case attached && !d.ReadOnly && p.holder(e, spec.KindMachine+"/"+machine) != "":
		a.State, a.Message = spec.StoragePending, "waiting for "+p.holder(e, spec.KindMachine+"/"+machine)
	case attached && d.ReadOnly == p.readOnly(e) && !d.Former:
		a.State, a.Source = spec.StorageAttached, d.Device
	case attached:
		waiting, _ := p.deviceInUse(e, true)
		a.State, a.Message = spec.StoragePending, "waiting for "+because(waiting, d)
	default:
		a.State, a.Message = spec.StoragePending, "waiting for its device"
	}
}

// upToDate sets the condition UpToDate. It is false while a step is held,
// unless the step's action failed.
func upToDate(s *spec.StorageStatus, steps []Step, now time.Time) {
	c := spec.Condition{Type: conditionUpToDate, Status: true, Reason: "AsDeclared", Since: now}
	for _, step := range steps {
		if step.Held != "" && attemptsOf(*s, step.Action).ErrorKind == "" {
			c.Status, c.Reason, c.Message = false, spec.ReasonHeldBack, step.Held
		}
	}
	s.Conditions = spec.SetCondition(s.Conditions, c)
}

// unverified returns the status of an entity whose source has not been observed
// since the agent started. It clears Source of all attachments, because no
// machine must start with a source that may be stale.
func unverified(s spec.StorageStatus) spec.StorageStatus {
	s.Attachments = maps.Clone(s.Attachments)
	for machine, a := range s.Attachments {
		a.Source = ""
		if a.State == spec.StorageAttached {
			a.State = spec.StoragePending
		}
		s.Attachments[machine] = a
	}
	return s
}

// fail records a failed step in the status. Failures of every kind but Invalid
// are retried after the time in delays, or earlier after a related event.
func fail(e *Entity, step Step, err error, now time.Time) {
	s := &e.Status
	e.observed(s)
	kind := fault.KindOf(err)
	if step.Machine != "" {
		s.Attachments = maps.Clone(s.Attachments)
		a := s.Attachments[step.Machine]
		reconcile.Failed(&a.Attempts, kind, now, delaysOf(kind))
		a.State, a.Message, a.Source = failedState(step.Action, kind, a.State), err.Error(), ""
		if s.Attachments == nil {
			s.Attachments = map[string]spec.AttachmentStatus{}
		}
		s.Attachments[step.Machine] = a
		return
	}
	turnTo(s, step.Action)
	reconcile.Failed(&s.Attempts, kind, now, delaysOf(kind))
	s.Conditions = spec.SetCondition(slices.Clone(s.Conditions), spec.Condition{
		Type: conditionFailed, Status: true, Reason: string(step.Action), Message: err.Error(), Since: now,
	})
	setFailed(s, step.Action)
}
