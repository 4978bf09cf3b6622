package provisioner

import (
	"testing"
	"time"

	"hostler/agent/spec"
)

// The looks for an address become rarer with the time since the start of the
// machine or worker, whichever is later, and never end.
func TestAddressDelay(t *testing.T) {
	at := func(ago time.Duration) func(*Desired) {
		return func(d *Desired) { when := t0.Add(-ago); d.Status.StartedAt = &when }
	}
	addressed := func(d *Desired) { d.Status.Addresses = []string{"10.0.0.7"} }
	pending := func(d *Desired) { d.Status.State = spec.MachinePending }
	for _, c := range []struct {
		what    string
		desired []Desired
		begun   time.Duration
		want    time.Duration
	}{
		{"it has one", []Desired{machine("web", provisioned, at(time.Second), addressed)}, time.Minute, 0},
		{"it does not run", []Desired{machine("web", provisioned, at(time.Second), pending)}, time.Minute, 0},
		{"just started", []Desired{machine("web", provisioned, at(time.Second))}, time.Hour, time.Second},
		{"started 40 s ago", []Desired{machine("web", provisioned, at(40*time.Second))}, time.Hour, 5 * time.Second},
		{"started long before the agent", []Desired{machine("web", provisioned, at(time.Hour))}, 4 * time.Second, time.Second},
		{"adopted, never started by hostler", []Desired{machine("web", provisioned)}, 80 * time.Second, 10 * time.Second},
		{"it never gets one", []Desired{machine("web", provisioned, at(24*time.Hour))}, 24 * time.Hour, 2 * time.Minute},
		{"two of them", []Desired{machine("web", provisioned, at(24*time.Hour)), machine("db", provisioned, at(time.Second))}, 24 * time.Hour, time.Second},
	} {
		if got := addressDelay(c.desired, t0.Add(-c.begun), t0, 2*time.Minute); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}
