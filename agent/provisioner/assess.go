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
	// ConditionReady: the instance can be used since its last start.
	ConditionReady = spec.ConditionReady
	// ConditionFailed: the last operation failed; its message is the error.
	ConditionFailed = "Failed"
)

// Assess tells the status of a machine that has no operation under way, from
// its record, its instance (nil: none) and the steps planned for it. Pure; now
// only dates what changed.
func Assess(d Desired, inst *containerbroker.Instance, steps []Step, now time.Time) spec.MachineStatus {
	s := d.Status
	inst = known(d, inst)
	s.Conditions = slices.Clone(s.Conditions)
	s.Percent, s.Hardware, s.Ports = nil, hardwareOf(inst), portsOf(inst)
	if inst == nil || inst.Status != containerbroker.StatusFrozen {
		s.RetriesDone = d.Record.RetryRequest
	}
	if s.ObservedGeneration < d.Generation {
		clearFailure(&s)
		// Until what the new generation asks for is there and done, or has
		// failed, the status does not speak of it.
		waiting := len(d.Waiting) > 0 && d.Life == state.Alive
		if !waiting && !slices.ContainsFunc(steps, func(step Step) bool { return step.Held == "" && step.Visible() }) {
			s.ObservedGeneration = d.Generation
		}
	}
	switch {
	case d.Resting:
		setReady(&s, false, spec.ReasonNotAutostarted, "the host was restarted, and autostart is false", now)
	case inst != nil && inst.Status == containerbroker.StatusStopped && isReady(s):
		setReady(&s, false, "Stopped", "the instance does not run", now)
	}
	assessUpToDate(&s, steps, now)

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

// hardwareOf is what an instance was given, as far as it has limits.
func hardwareOf(inst *containerbroker.Instance) *spec.Hardware {
	if inst == nil {
		return nil
	}
	return &spec.Hardware{Arch: inst.Arch, CPUs: max(inst.CPUs, 0), Memory: inst.Memory, RootDisk: inst.RootDisk, RootUnlimited: inst.RootUnlimited}
}

// portsOf are the host's ends of an instance's interfaces.
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

// over says that a failure which would be retried left nothing to be retried:
// what failed was done all the same, and only its record was not.
func over(s spec.MachineStatus, d Desired, inst *containerbroker.Instance, steps []Step) bool {
	if s.Attempts.NextRetry == nil || inst == nil ||
		slices.ContainsFunc(steps, func(step Step) bool { return step.Held == "" }) {
		return false
	}
	switch inst.Status {
	case containerbroker.StatusRunning:
		return d.wantsRunning() && isReady(s)
	case containerbroker.StatusStopped:
		return !d.wantsRunning()
	}
	return false
}

// conflictGone says that the listing explained the last conflict and does so no
// more. A conflict that an operation met has a time for the next try.
func conflictGone(s spec.MachineStatus) bool {
	return s.Attempts.ErrorKind == string(fault.Conflict) && s.Attempts.NextRetry == nil
}

// assessInstance sets state and message from the instance alone.
func assessInstance(s *spec.MachineStatus, d Desired, inst *containerbroker.Instance, steps []Step) {
	s.Message = ""
	switch {
	case inst == nil:
		s.State, s.Message, s.Addresses = spec.MachinePending, "waiting to be created", nil
	case inst.Status == containerbroker.StatusStopped && d.wantsRunning():
		s.State, s.Message, s.Addresses = spec.MachinePending, "waiting to be started", nil
		if s.Deaths > 2 {
			s.Message = fmt.Sprintf("died %d times in a row soon after its start", s.Deaths)
		}
	case inst.Status == containerbroker.StatusStopped:
		s.State, s.Addresses = spec.MachineStopped, nil
		if d.Resting {
			s.Message = "not started with the host (autostart: false); start it by `hostler start " + d.Name + "`"
		}
	case inst.Status == containerbroker.StatusFrozen:
		s.State, s.Message = spec.MachineStopped, cmp.Or(inst.Standstill, "frozen by hand")
	case inst.Status == containerbroker.StatusRunning && (isReady(*s) || !d.wantsRunning()):
		s.State = spec.MachineRunning
	case inst.Status == containerbroker.StatusRunning:
		s.State, s.Message = spec.MachineProvisioning, "booting"
	case inst.Status == containerbroker.StatusHalfMade:
		s.State, s.Message, s.Addresses = spec.MachinePending, "its create was cut short", nil
	case inst.Status == containerbroker.StatusBusy:
		s.State, s.Message = spec.MachineProvisioning, "the hypervisor is busy with it"
	default:
		s.State, s.Message = spec.MachineUnknown, "the hypervisor cannot tell its state"
	}
	if len(d.Waiting) > 0 {
		s.Message = "waiting for " + strings.Join(d.Waiting, ", ")
	}
	var needs []string
	for _, step := range steps {
		if step.Held != "" {
			needs = append(needs, "needs "+string(step.Impact)+": "+step.Detail)
		}
	}
	if len(needs) > 0 && s.State == spec.MachineRunning {
		s.Message = strings.Join(needs, "; ")
	}
}

// assessUpToDate says whether a change is held back.
func assessUpToDate(s *spec.MachineStatus, steps []Step, now time.Time) {
	c := spec.Condition{Type: spec.ConditionUpToDate, Status: true, Reason: "AsDeclared", Since: now}
	for _, step := range steps {
		if step.Action == ActionConflict && len(step.Changes) > 0 {
			c.Status, c.Reason, c.Message = false, "InVain", step.Held
		}
		if step.Held != "" && step.Action != ActionConflict {
			text := fmt.Sprintf("%s; apply again with %s", step.Detail, step.Held)
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

// needsReason is the condition's word for a change that waits: NeedsRestart.
func needsReason(i containerbroker.Impact) string {
	word := string(i)
	return "Needs" + strings.ToUpper(word[:1]) + word[1:]
}

// onlyFirstBoot says that the changes are to what a guest is told of its first
// boot alone: the instance has all else as declared.
func onlyFirstBoot(changes []containerbroker.Change) bool {
	return len(changes) > 0 && !slices.ContainsFunc(changes, func(c containerbroker.Change) bool { return c.Field != containerbroker.FieldUserData })
}

func dyingMessage(steps []Step) string {
	if len(steps) > 0 {
		return steps[0].Detail
	}
	return "being removed"
}

// Blind is the status while the hypervisor cannot be asked: nothing is known,
// and nothing is said to be gone.
func Blind(d Desired, cause error) spec.MachineStatus {
	s := d.Status
	if d.Life != state.Alive || s.Instance == nil && s.State == spec.MachineError {
		return s
	}
	s.State = spec.MachineUnknown
	if s.Message = containerbroker.Unanswered(cause); s.Message == "" {
		s.Message = fmt.Sprintf("the hypervisor cannot be asked: %v", cause)
	}
	return s
}

const (
	reasonRetrying = "Retrying"
	reasonFailed   = "Failed"
)

// assessFailed sets state and message from the recorded failure.
func assessFailed(s *spec.MachineStatus) {
	for _, c := range s.Conditions {
		if c.Type != ConditionFailed || !c.Status {
			continue
		}
		s.Message = c.Message
		if s.State == spec.MachineDying {
			return
		}
		s.State = spec.MachineError
		if c.Reason == reasonRetrying {
			s.State = spec.MachinePending
		}
	}
}

func clearFailure(s *spec.MachineStatus) {
	s.Attempts, s.StartFailed, s.FailedStep = spec.Attempts{}, false, nil
	s.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(c spec.Condition) bool { return c.Type == ConditionFailed })
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
