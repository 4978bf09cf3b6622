package cli

import (
	"fmt"
	"strings"

	"hostler/agent/client"
	"hostler/agent/spec"
)

// verdict is the progress of a followed machine.
type verdict int

const (
	undecided verdict = iota
	asDeclared
	failed
)

// judge decides whether a machine is as declared. wantRunning is the declared
// state, or the state requested with start or stop. A status of an older
// generation decides nothing.
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

// ready is false only if a condition says so: instances of images without
// cloud-init are ready without a condition.
func ready(conditions []spec.Condition) bool {
	for _, c := range conditions {
		if c.Type == "Ready" {
			return c.Status
		}
	}
	return true
}

// notLooked is shown for a status of an earlier declaration.
const notLooked = "waiting for the agent to look at the new declaration"

// phase describes the current operation of a machine, or the object it waits
// for, in a few words.
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
	case m.Message != "" && m.Percent != nil && !strings.Contains(m.Message, "%"):
		return fmt.Sprintf("%s %d %%", m.Message, *m.Percent)
	case m.Message != "" && m.Status == spec.MachineError:
		return word + ": " + m.Message
	case m.Message != "":
		return m.Message
	case m.Percent != nil:
		return fmt.Sprintf("%s %d %%", word, *m.Percent)
	}
	return word
}
