package units

import (
	"context"

	"github.com/coreos/go-systemd/v22/dbus"

	"hostler/internal/fault"
)

// Service is the name of a unit that the agent starts and stops.
type Service string

// Start starts the unit and waits until it is ready. It resets a failed unit
// first. It succeeds if the unit already runs.
func (u Service) Start(ctx context.Context) error {
	s, err := read(ctx, string(u))
	if err != nil {
		return err
	}
	if s.masked() {
		return fault.New(fault.NeedsOperator, "%s", s.down())
	}
	if s.active == "failed" {
		if err := resetFailed(ctx, string(u)); err != nil {
			return err
		}
	}
	return job(ctx, "start", string(u), func(c *dbus.Conn, result chan<- string) (int, error) {
		return c.StartUnitContext(ctx, string(u), "replace", result)
	})
}

// Stop stops the unit.
func (u Service) Stop(ctx context.Context) error {
	return job(ctx, "stop", string(u), func(c *dbus.Conn, result chan<- string) (int, error) {
		return c.StopUnitContext(ctx, string(u), "replace", result)
	})
}

// End stops the unit unless it is stopped or absent.
func (u Service) End(ctx context.Context) error {
	s, err := read(ctx, string(u))
	if err != nil || s.ended() {
		return err
	}
	return u.Stop(ctx)
}

// Down returns the reason why systemd will not start the unit by itself, or "".
func (u Service) Down(ctx context.Context) (string, error) {
	s, err := read(ctx, string(u))
	return s.down(), err
}

// Failed reports whether the unit failed. A unit that is absent did not.
func (u Service) Failed(ctx context.Context) (bool, error) {
	s, err := read(ctx, string(u))
	return s.active == "failed", err
}

// Row returns the unit's row in the host's status.
func (u Service) Row(ctx context.Context) (Row, error) {
	s, err := read(ctx, string(u))
	return s.Row(), err
}

// StartTransient starts a program as a transient unit, which systemd removes
// when the program ends successfully.
func StartTransient(ctx context.Context, unit, description string, command []string) error {
	properties := []dbus.Property{dbus.PropDescription(description), dbus.PropExecStart(command, false), dbus.PropType("exec")}
	return job(ctx, "start", unit, func(c *dbus.Conn, result chan<- string) (int, error) {
		return c.StartTransientUnitContext(ctx, unit, "fail", properties, result)
	})
}

// job queues a systemd job and waits for its end.
func job(ctx context.Context, verb, unit string, queue func(*dbus.Conn, chan<- string) (int, error)) error {
	return fault.Explain(runJob(ctx, unit, queue), "cannot %s %s", verb, unit)
}
