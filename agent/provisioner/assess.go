package provisioner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// The condition types of a machine.
const (
	// ConditionReady is true if the instance became usable after its last start.
	ConditionReady = spec.ConditionReady
	// ConditionFailed is true if the last operation failed. Its message is the
	// error.
	ConditionFailed = "Failed"
)

// assess returns the status of a machine without a running operation. It
// derives the status from the record, the instance (nil if there is none) and
// the planned steps. It is a pure function and uses now only to date changed
// conditions.
func assess(d *Desired, inst *containerbroker.Instance, steps []Step, now time.Time) spec.MachineStatus {
	s := d.Status
	inst = known(d, inst)
	s.Conditions = slices.Clone(s.Conditions)
	if d.migrates() {
		clearFailure(&s)
		s.State, s.Message, s.ObservedGeneration = spec.MachineProvisioning, "moving to "+string(d.Record.Migration.To), d.Generation
		setReady(&s, false, "Migrating", "", now)
		return s
	}
	s.Percent, s.Hardware, s.Ports = nil, hardwareOf(inst), portsOf(inst)
	if inst == nil || inst.Status != containerbroker.StatusFrozen {
		s.RetriesDone = d.Record.RetryRequest
	}
	if s.ObservedGeneration < d.Generation {
		clearFailure(&s)
		// The status keeps the old generation until the steps for the new generation
		// are done or have failed.
		waiting := len(d.Waiting) > 0 && d.Life == state.Alive && !d.heldBack(inst)
		if !waiting && !slices.ContainsFunc(steps, func(step Step) bool { return step.Held == "" && step.Visible() }) {
			s.ObservedGeneration = d.Generation
		}
	}
	switch {
	case d.NotAutostarted:
		setReady(&s, false, spec.ReasonNotAutostarted, "the host was restarted, and autostart is false", now)
	case inst != nil && inst.Status == containerbroker.StatusStopped && isReady(&s):
		setReady(&s, false, "Stopped", "the instance does not run", now)
	}
	if !d.heldBack(inst) {
		assessUpToDate(&s, inst, steps, now)
	} else {
		s.Conditions = spec.SetCondition(s.Conditions, spec.Condition{
			Type: spec.ConditionUpToDate, Reason: spec.ReasonHeldBack, Message: "waiting for " + strings.Join(d.Waiting, ", ") + ", whose change is held", Since: now,
		})
	}

	conflict := find(steps, ActionConflict)
	failed := s.Attempts.ErrorKind != ""
	switch {
	case d.Life != state.Alive:
		s.State = spec.MachineDying
		if !failed {
			s.Message = dyingMessage(steps)
		}
	case conflict != nil:
		s.State, s.Message = spec.MachineError, conflict.Held
		s.Attempts = spec.Attempts{Count: s.Attempts.Count, ErrorKind: string(fault.Conflict)}
	case failed && !conflictGone(s) && !over(s, d, inst, steps):
		assessFailed(&s)
	default:
		clearFailure(&s)
		assessInstance(&s, d, inst, steps)
	}
	return s
}

// heldBack reports whether a running machine's changes wait until the user permits
// the change of its storage.
func (d *Desired) heldBack(inst *containerbroker.Instance) bool {
	return d.HeldBack && inst != nil && inst.Status == containerbroker.StatusRunning
}

// hardwareOf returns the hardware of an instance as limited by its settings, or
// nil without an instance.
func hardwareOf(inst *containerbroker.Instance) *spec.Hardware {
	if inst == nil {
		return nil
	}
	return &spec.Hardware{Arch: inst.Arch, CPUs: max(inst.CPUs, 0), Memory: inst.Memory, RootDisk: inst.RootDisk, RootUnlimited: inst.RootUnlimited}
}

// portsOf returns the host's end of each NIC of an instance, by the NIC's name.
func portsOf(inst *containerbroker.Instance) map[string]spec.Port {
	if inst == nil || len(inst.Ports) == 0 {
		return nil
	}
	ports := map[string]spec.Port{}
	for nic, p := range inst.Ports {
		ports[nic] = spec.Port(p)
	}
	return ports
}

// over reports whether a pending retry has nothing left to do, because the step
// succeeded and only its result was not recorded.
func over(s spec.MachineStatus, d *Desired, inst *containerbroker.Instance, steps []Step) bool {
	if s.Attempts.NextRetry == nil || inst == nil ||
		slices.ContainsFunc(steps, func(step Step) bool { return step.Held == "" }) {
		return false
	}
	switch inst.Status {
	case containerbroker.StatusRunning:
		return d.wantsRunning() && isReady(&s)
	case containerbroker.StatusStopped:
		return !d.wantsRunning()
	}
	return false
}

// conflictGone reports whether the recorded failure is a conflict that a plan
// found. The caller has found no conflict in the current plan, so that conflict
// has ended. A conflict that an operation met has a time for its retry.
func conflictGone(s spec.MachineStatus) bool {
	return s.Attempts.ErrorKind == string(fault.Conflict) && s.Attempts.NextRetry == nil
}

// assessInstance sets State and Message for a machine without a failure.
func assessInstance(s *spec.MachineStatus, d *Desired, inst *containerbroker.Instance, steps []Step) {
	s.Message = ""
	switch {
	case inst == nil:
		s.State, s.Message, s.Addresses = spec.MachinePending, "waiting to be created", nil
	case inst.Unreadable:
		s.State, s.Message = spec.MachineError, inst.Odd
	case inst.Status == containerbroker.StatusStopped && d.wantsRunning():
		s.State, s.Message, s.Addresses = spec.MachinePending, "waiting to be started", nil
		if s.Deaths > 2 {
			s.Message = fmt.Sprintf("stopped %d times in a row soon after its start", s.Deaths)
		}
	case inst.Status == containerbroker.StatusStopped:
		s.State, s.Addresses = spec.MachineStopped, nil
		if d.NotAutostarted {
			s.Message = "not started with the host (autostart: false); start it by `hostler start " + d.Name + "`"
		}
	case inst.Status == containerbroker.StatusFrozen:
		s.State, s.Message = spec.MachineStopped, cmp.Or(inst.Standstill, "frozen outside hostler")
	case inst.Status == containerbroker.StatusRunning && (isReady(s) || !d.wantsRunning()):
		s.State = spec.MachineRunning
	case inst.Status == containerbroker.StatusRunning:
		s.State, s.Message = spec.MachineProvisioning, "booting"
	case inst.Status == containerbroker.StatusHalfMade:
		s.State, s.Message, s.Addresses = spec.MachinePending, "its create was cut short", nil
	case inst.Status == containerbroker.StatusBusy:
		s.State, s.Message = spec.MachineProvisioning, "the hypervisor is busy with it"
	default:
		s.State, s.Message = spec.MachineUnknown, "the hypervisor does not know its state"
	}
	if len(d.Waiting) > 0 {
		s.Message = "waiting for " + strings.Join(d.Waiting, ", ")
	}
	var needs []string
	for _, step := range steps {
		if step.Waiting != "" {
			s.Message = "waiting for " + step.Waiting
		}
		if step.Held != "" {
			needs = append(needs, "needs "+string(step.Impact)+": "+step.Detail)
		}
	}
	if len(needs) > 0 && s.State == spec.MachineRunning {
		s.Message = strings.Join(needs, "; ")
	}
}

// assessUpToDate sets the condition UpToDate. It is false while a change is
// held, if a restart did not make a change, or if the instance cannot be read.
func assessUpToDate(s *spec.MachineStatus, inst *containerbroker.Instance, steps []Step, now time.Time) {
	c := spec.Condition{Type: spec.ConditionUpToDate, Status: true, Reason: "AsDeclared", Since: now}
	if inst != nil && inst.Unreadable {
		c.Status, c.Reason, c.Message = false, "Unreadable", inst.Odd
	}
	for _, step := range steps {
		if step.Action == ActionConflict && len(step.Changes) > 0 {
			c.Status, c.Reason, c.Message = false, "InVain", step.Held
		}
		if step.Held != "" && step.Action != ActionConflict {
			text := fmt.Sprintf("%s; apply again with %s", step.Detail, step.Held)
			if step.Allow == "" {
				text = step.Detail + "; it waits for " + step.Held
			}
			reason := needsReason(step.Impact)
			if c.Status && onlyFirstBoot(step.Changes) {
				reason = spec.ReasonNewMachineOnly
			}
			if !c.Status && c.Reason != "InVain" {
				text = c.Message + "; " + text
			}
			c.Status, c.Reason, c.Message = false, reason, text
		}
	}
	s.Conditions = spec.SetCondition(s.Conditions, c)
}

// needsReason returns the reason of the condition for a held change, e.g.
// NeedsRestart.
func needsReason(i containerbroker.Impact) string {
	word := string(i)
	return "Needs" + strings.ToUpper(word[:1]) + word[1:]
}

// onlyFirstBoot reports whether all changes concern user-data, which the guest
// reads only on its first boot.
func onlyFirstBoot(changes []containerbroker.Change) bool {
	return len(changes) > 0 && !slices.ContainsFunc(changes, func(c containerbroker.Change) bool { return c.Field != containerbroker.FieldUserData })
}

func dyingMessage(steps []Step) string {
	if len(steps) > 0 && steps[0].Waiting != "" {
		return "waiting for " + steps[0].Waiting
	}
	if len(steps) > 0 {
		return steps[0].Detail
	}
	return "being removed"
}

// blind returns the status of a machine while the hypervisor does not answer.
// The state is unknown. The recorded instance stays, because nothing shows that
// it is gone.
func blind(d *Desired, cause error) spec.MachineStatus {
	s := d.Status
	if d.Life != state.Alive || s.Instance == nil && s.State == spec.MachineError {
		return s
	}
	s.State = spec.MachineUnknown
	if s.Message = containerbroker.Unanswered(cause); s.Message == "" {
		s.Message = fmt.Sprintf("the hypervisor does not answer: %v", cause)
	}
	return s
}

const (
	reasonRetrying = "Retrying"
	reasonFailed   = "Failed"
)

// assessFailed sets State and Message from the recorded failure.
func assessFailed(s *spec.MachineStatus) {
	c := spec.ConditionOf(s.Conditions, ConditionFailed)
	if !c.Status {
		return
	}
	s.Message = c.Message
	switch {
	case s.State == spec.MachineDying:
	case c.Reason == reasonRetrying:
		s.State = spec.MachinePending
	default:
		s.State = spec.MachineError
	}
}

func clearFailure(s *spec.MachineStatus) {
	s.Attempts, s.StartFailed, s.FailedStep = spec.Attempts{}, false, nil
	s.Conditions = spec.WithoutCondition(s.Conditions, ConditionFailed)
}

func setReady(s *spec.MachineStatus, ready bool, reason, message string, now time.Time) {
	s.Conditions = spec.SetCondition(s.Conditions, spec.Condition{Type: ConditionReady, Status: ready, Reason: reason, Message: message, Since: now})
}

func find(steps []Step, a Action) *Step {
	for i := range steps {
		if steps[i].Action == a {
			return &steps[i]
		}
	}
	return nil
}
