package cli

import (
	"fmt"
	"strings"

	"hostler/agent/api"
	"hostler/agent/spec"
)

// verdict is how far a followed machine is.
type verdict int

const (
	unsettled verdict = iota
	settled
	failed
)

// judge decides whether a machine is as declared. wantRunning is what the
// person declared (or asked for with start or stop). A status that speaks of
// an older generation decides nothing.
func judge(m api.Machine, wantRunning bool) verdict {
	if !m.Observed {
		return unsettled
	}
	switch m.Status {
	case spec.MachineRunning:
		if wantRunning && ready(m.Conditions) {
			return settled
		}
	case spec.MachineStopped:
		if !wantRunning {
			return settled
		}
	case spec.MachineError:
		// An error that will be tried again by itself is not the end.
		if m.NextRetry == nil {
			return failed
		}
	}
	return unsettled
}

// ready is false only when a condition says so: images without cloud-init are
// ready without one.
func ready(conditions []spec.Condition) bool {
	for _, c := range conditions {
		if c.Type == "Ready" {
			return c.Status
		}
	}
	return true
}

// notLooked stands for a status that speaks of an earlier declaration.
const notLooked = "waiting for the agent to look at the new declaration"

// phase says in a few words what a machine is doing or waiting for.
func phase(m api.Machine) string {
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
