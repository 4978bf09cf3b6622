package provisioner

import (
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/containerbroker"
)

// A machine that waits for a recreate and a restart shows both.
func TestConditionNamesAllHeldChanges(t *testing.T) {
	var s spec.MachineStatus
	assessUpToDate(&s, nil, []Step{
		{Action: ActionRecreate, Impact: containerbroker.ImpactRecreate, Detail: "changes image", Held: "--allow recreate"},
		{Action: ActionRestart, Impact: containerbroker.ImpactRestart, Detail: "changes nesting", Held: "--allow restart"},
	}, time.Now())
	c := s.Conditions[0]
	if c.Reason != "NeedsRestart" || !strings.Contains(c.Message, "changes image") || !strings.Contains(c.Message, "changes nesting") {
		t.Errorf("%+v", c)
	}
}
