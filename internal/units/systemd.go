package units

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"hostler/internal/fault"
)

// systemd is the host's systemd.
type systemd struct{}

var _ system = systemd{}

// errorName is the beginning of the names of systemd's errors.
const errorName = "org.freedesktop.systemd1."

func isError(err error, name string) bool {
	var e godbus.Error
	return errors.As(err, &e) && e.Name == errorName+name
}

// connect returns a connection to the host's systemd.
func connect(ctx context.Context) (*dbus.Conn, error) {
	conn, err := dbus.NewSystemConnectionContext(ctx)
	return conn, fault.Explain(err, "cannot reach systemd")
}

// Start implements system.
func (systemd) Start(ctx context.Context, unit string, properties []dbus.Property) error {
	err := runJob(ctx, unit, func(c *dbus.Conn, result chan<- string) (int, error) {
		return c.StartTransientUnitContext(ctx, unit, "fail", properties, result)
	})
	if isError(err, "UnitExists") {
		return errExists
	}
	return err
}

// runJob queues a job and waits for its end. It returns queue's error
// unchanged.
func runJob(ctx context.Context, unit string, queue func(*dbus.Conn, chan<- string) (int, error)) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	result := make(chan string, 1)
	if _, err := queue(conn, result); err != nil {
		return err
	}
	r, err := ending(ctx, result, conn.Connected)
	if err == nil && r != "done" {
		err = fmt.Errorf("the job ended as %q; see `journalctl -u %s`", r, unit)
	}
	return err
}

// ending waits for the end of a job and returns the job's result.
func ending(ctx context.Context, result <-chan string, connected func() bool) (string, error) {
	check := time.NewTicker(awaitPoll)
	defer check.Stop()
	for {
		select {
		case r := <-result:
			return r, nil
		case <-ctx.Done():
			return "", ctx.Err()
		case <-check.C:
			if !connected() {
				return "", errors.New("the connection to systemd broke off")
			}
		}
	}
}

// Main implements system.
func (systemd) Main(ctx context.Context, unit string) (int, error) {
	conn, err := connect(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	p, err := conn.GetUnitTypePropertyContext(ctx, unit, "Service", "MainPID")
	if isError(err, "NoSuchUnit") || err == nil && p == nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	pid, _ := p.Value.Value().(uint32)
	return int(pid), nil
}

// Loaded implements system.
func (systemd) Loaded(ctx context.Context, unit string) (map[string]bool, error) {
	conn, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	units, err := conn.ListUnitsByPatternsContext(ctx, nil, []string{unit, stem(unit) + ":*.service"})
	if err != nil {
		return nil, err
	}
	return loaded(units), nil
}

// loaded returns for each loaded unit whether it runs. It leaves out units that
// do not exist, which are listed because another unit names them.
func loaded(units []dbus.UnitStatus) map[string]bool {
	runs := map[string]bool{}
	for _, u := range units {
		if u.LoadState != "not-found" {
			runs[u.Name] = u.ActiveState != "inactive" && u.ActiveState != "failed"
		}
	}
	return runs
}

// UnitOf implements system.
func (systemd) UnitOf(ctx context.Context, pid int) (string, error) {
	conn, err := connect(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	unit, err := conn.GetUnitNameByPID(ctx, uint32(pid))
	if isError(err, "NoUnitForPID") {
		return "", nil
	}
	return unit, err
}

// Stop implements system.
func (systemd) Stop(ctx context.Context, unit string) error {
	err := runJob(ctx, unit, func(c *dbus.Conn, result chan<- string) (int, error) {
		return c.StopUnitContext(ctx, unit, "replace", result)
	})
	if isError(err, "NoSuchUnit") {
		return nil
	}
	return err
}
