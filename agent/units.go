package agent

import (
	"context"
	"fmt"

	"github.com/coreos/go-systemd/v22/dbus"

	"hostler/agent/spec"
	"hostler/internal/fault"
	"hostler/internal/units"
)

// unitProvisioner runs a type's provisioner as a systemd unit, so that it has
// only the rights it needs and its crash affects no other worker.
type unitProvisioner struct{ t spec.ContainerType }

func (u unitProvisioner) unit() string { return fmt.Sprintf("hostler-provisioner@%s.service", u.t) }

// Start starts the unit and waits until it is ready. It resets a failed unit
// first; a running unit is success.
func (u unitProvisioner) Start(ctx context.Context) error {
	s, err := readUnit(ctx, u.unit())
	if err != nil {
		return err
	}
	if s.masked() {
		return fault.New(fault.NeedsOperator, "%s", s.down())
	}
	if s.active == "failed" {
		if err := resetFailed(ctx, u.unit()); err != nil {
			return err
		}
	}
	return u.job(ctx, "start", func(c *dbus.Conn, result chan<- string) (int, error) {
		return c.StartUnitContext(ctx, u.unit(), "replace", result)
	})
}

// Stop stops the unit; its guests keep running.
func (u unitProvisioner) Stop(ctx context.Context) error {
	return u.job(ctx, "stop", func(c *dbus.Conn, result chan<- string) (int, error) {
		return c.StopUnitContext(ctx, u.unit(), "replace", result)
	})
}

// end stops the unit unless it is stopped or absent.
func (u unitProvisioner) end(ctx context.Context) error {
	s, err := readUnit(ctx, u.unit())
	if err != nil || s.ended() {
		return err
	}
	return u.Stop(ctx)
}

// Down implements containersetup.Fallible.
func (u unitProvisioner) Down(ctx context.Context) (string, error) {
	s, err := readUnit(ctx, u.unit())
	return s.down(), err
}

// startTransient starts a program as a transient unit, which systemd removes
// when the program ends successfully.
func startTransient(ctx context.Context, unit, description string, command []string) error {
	properties := []dbus.Property{dbus.PropDescription(description), dbus.PropExecStart(command, false), dbus.PropType("exec")}
	return unitJob(ctx, "start", unit, func(c *dbus.Conn, result chan<- string) (int, error) {
		return c.StartTransientUnitContext(ctx, unit, "fail", properties, result)
	})
}

func (u unitProvisioner) job(ctx context.Context, verb string, queue func(*dbus.Conn, chan<- string) (int, error)) error {
	return unitJob(ctx, verb, u.unit(), queue)
}

// unitJob queues a systemd job and waits for its end.
func unitJob(ctx context.Context, verb, unit string, queue func(*dbus.Conn, chan<- string) (int, error)) error {
	if err := units.Job(ctx, unit, queue); err != nil {
		return fmt.Errorf("cannot %s %s: %w", verb, unit, err)
	}
	return nil
}
