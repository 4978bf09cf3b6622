package cli

import (
	"cmp"
	"strings"

	"hostler/agent/client"
	"hostler/agent/spec"
)

// verdict is the progress of a followed object.
type verdict int

const (
	undecided verdict = iota
	asDeclared
	failed
)

// judge decides whether a machine is as declared. wantRunning is the declared
// state, or the state requested with start or stop. If the status belongs to an
// older generation, the verdict is undecided.
func judge(m client.Machine, wantRunning bool) verdict {
	if !m.Observed {
		return undecided
	}
	switch m.Status {
	case spec.MachineRunning:
		if wantRunning && ready(m.Conditions) {
			return asDeclared
		}
	case spec.MachineStopped:
		if !wantRunning {
			return asDeclared
		}
	case spec.MachineError:
		// An error with a retry is not final.
		if m.NextRetry == nil {
			return failed
		}
	}
	return undecided
}

// ready returns the status of the Ready condition, or true if there is none.
// Instances of images without cloud-init have no such condition.
func ready(conditions []spec.Condition) bool {
	for _, c := range conditions {
		if c.Type == "Ready" {
			return c.Status
		}
	}
	return true
}

// notLooked is the text that is shown if the status belongs to an earlier
// declaration.
const notLooked = "waiting for the agent to look at the new declaration"

// phase describes in a few words the current operation of a machine, or the
// object that the machine waits for.
func phase(m client.Machine) string {
	word := string(m.Status)
	switch {
	case !m.Observed && m.Status == spec.MachineError:
		return notLooked
	case m.Status == spec.MachineRunning && ready(m.Conditions):
		if len(m.Addresses) > 0 {
			return word + " " + strings.Join(m.Addresses, " ")
		}
		return word
	case m.Message != "" && m.Status == spec.MachineError && m.Percent == nil:
		return word + ": " + m.Message
	}
	return withPercent(cmp.Or(m.Message, word), m.Percent)
}
