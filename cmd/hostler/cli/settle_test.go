package cli

import (
	"testing"
	"time"

	"hostler/agent/api"
	"hostler/agent/spec"
)

// When a followed machine counts as settled, failed or still under way.
func TestJudge(t *testing.T) {
	unready := running("web", "10.1.2.3")
	unready.Conditions = []spec.Condition{{Type: "Ready", Status: false}}
	stale := func(m api.Machine) api.Machine { m.Observed = false; return m }
	for _, c := range []struct {
		name string
		m    api.Machine
		runs bool
		want verdict
	}{
		{"runs and should", running("web", "10.1.2.3"), true, settled},
		{"runs but should stop", running("web", "10.1.2.3"), false, unsettled},
		{"runs, not ready yet", unready, true, unsettled},
		{"runs, as an older generation", stale(running("web", "10.1.2.3")), true, unsettled},
		{"stopped and should", machine("web", spec.MachineStopped, ""), false, settled},
		{"stopped but should run", machine("web", spec.MachineStopped, ""), true, unsettled},
		{"pending", machine("web", spec.MachinePending, ""), true, unsettled},
		{"provisioning", machine("web", spec.MachineProvisioning, ""), true, unsettled},
		{"unknown", machine("web", spec.MachineUnknown, ""), true, unsettled},
		{"dying", machine("web", spec.MachineDying, ""), true, unsettled},
		{"error that is retried", retried(machine("web", spec.MachineError, "no"), 1, time.Second), true, unsettled},
		{"error that needs a person", machine("web", spec.MachineError, "no"), true, failed},
		{"error of an older generation", stale(machine("web", spec.MachineError, "no")), true, unsettled},
	} {
		if got := judge(c.m, c.runs); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

// An error from before the removal does not end the wait for it.
func TestJudgeOfWhatHasToGo(t *testing.T) {
	f := &follower{goals: goals{gone: map[string]bool{"web": true}}}
	stuck := machine("web", spec.MachineError, "cannot delete the instance")
	stuck.Life = "dying"
	fromBefore := stuck
	fromBefore.Observed = false
	for _, c := range []struct {
		m      api.Machine
		exists bool
		want   verdict
	}{{stuck, true, failed}, {fromBefore, true, unsettled}, {api.Machine{}, false, settled}} {
		if got, text := f.judge(t.Context(), c.m, c.exists, "web"); got != c.want {
			t.Errorf("%+v: %v (%s), want %v", c.m, got, text, c.want)
		}
	}
}

func TestPhase(t *testing.T) {
	for want, m := range map[string]api.Machine{
		"pending":                      machine("a", spec.MachinePending, ""),
		"running 10.1.2.3":             running("a", "10.1.2.3"),
		"running":                      machine("a", spec.MachineRunning, ""),
		"fetching debian/12 43 %":      at(machine("a", spec.MachineProvisioning, "fetching debian/12"), 43),
		"fetching 43 % of debian/12":   at(machine("a", spec.MachineProvisioning, "fetching 43 % of debian/12"), 43),
		"provisioning 7 %":             at(machine("a", spec.MachineProvisioning, ""), 7),
		"error: cannot start: refused": machine("a", spec.MachineError, "cannot start: refused"),
		"waiting for cloud-init":       machine("a", spec.MachineProvisioning, "waiting for cloud-init"),
	} {
		if got := phase(m); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The word that --allow needs is read from what holds the step.
func TestHeldWord(t *testing.T) {
	for held, want := range map[string]string{
		"":                                    "",
		"--allow restart":                     "restart",
		"needs --allow recreate to go on":     "recreate",
		"apply again with `--allow restart`.": "restart",
		"not yet supported by this agent":     "",
	} {
		if got := allowOf(api.Step{Held: held}); got != want {
			t.Errorf("allowOf(%q) = %q, want %q", held, got, want)
		}
	}
}
