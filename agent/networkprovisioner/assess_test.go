package networkprovisioner

import (
	"slices"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// What waits is told by a condition, in life and in dying.
func TestWaitingIsACondition(t *testing.T) {
	n := network("lan", lan())
	dying := n
	dying.Life = state.Dying
	for _, c := range []struct {
		name                  string
		n                     Network
		p                     Planned
		state, reason, notice string
		upToDate              bool
	}{
		{"as declared", n, Planned{}, "ready", "AsDeclared", "", true},
		{"a change waits to be confirmed", n, Planned{Waits: "waits for a word"}, "pending", "Waiting", "", false},
		{"a change waits to be allowed", n, Planned{Held: "it cuts off web"}, "ready", "Needsrestart", "network/lan: it cuts off web; apply again with --allow restart", false},
		{"dying", dying, Planned{}, "dying", "Dying", "", true},
		{"dying, with a machine", dying, Planned{Waiting: "waiting for machine/web to let go"}, "dying", "Waiting", "", false},
	} {
		s := Assess(c.n, c.p, nil, failure{}, nil, t0)
		i := slices.IndexFunc(s.Conditions, func(c spec.Condition) bool { return c.Type == conditionUpToDate })
		if i < 0 || s.State != c.state || s.Conditions[i].Reason != c.reason || s.Conditions[i].Status != c.upToDate {
			t.Errorf("%s: %s, %+v", c.name, s.State, s.Conditions)
		}
		equalText(t, c.name, troubles(c.n, s), c.notice)
	}
}
