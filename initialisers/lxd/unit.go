package lxd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// service returns the name of the daemon's systemd service.
func (i *Initialiser) service() string {
	if i.snap() {
		return paths.SnapLXDUnit
	}
	return i.opts.Dialect.service
}

func (i *Initialiser) underSystemd() bool {
	_, err := os.Stat(i.opts.Paths.SystemdRunning())
	return err == nil && i.opts.Dir == ""
}

// startUnit starts the units of Debian's package or of the snap. It uses
// --no-block, because the service's start job waits until LXD is ready, and
// waitReady() waits with progress messages instead. The returned function is
// unitLives().
func (i *Initialiser) startUnit(ctx context.Context) (func() error, error) {
	commands := [][]string{{"start", "--no-block", i.service()}}
	if !i.snap() {
		commands = append([][]string{{"start", i.opts.Dialect.socket}}, commands...)
	}
	for _, args := range commands {
		if _, err := i.systemctl(ctx, args...); err != nil {
			return nil, fault.New(fault.Transient, "cannot start %s: %w", i.opts.Dialect.Name, err)
		}
	}
	return func() error { return i.unitLives(ctx) }, nil
}

func (i *Initialiser) systemctl(ctx context.Context, args ...string) (run.Result, error) {
	return i.opts.Runner.Run(ctx, run.Command{Path: paths.Systemctl, Args: args, Timeout: time.Minute})
}

// unitLives returns an error once the service has failed. If the daemon ended
// before it answered, unitLives restarts the unit, because otherwise Debian's
// ExecStartPost would wait ten minutes more, and so would every client that
// starts the unit.
func (i *Initialiser) unitLives(ctx context.Context) error {
	shown, err := i.systemctl(ctx, "show", "--property=ActiveState,SubState,MainPID", i.service())
	if err != nil {
		return nil //nolint:nilerr // what cannot be asked is not known to be dead
	}
	unit := map[string]string{}
	for line := range strings.Lines(string(shown.Stdout)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		unit[key] = value
	}
	switch {
	case unit["ActiveState"] == "failed":
		return fmt.Errorf("%s failed; see `journalctl -u %s`", i.service(), strings.TrimSuffix(i.service(), ".service"))
	case unit["SubState"] == "start-post" && unit["MainPID"] == "0":
		i.log.Warn("The daemon ended before it answered; its unit is restarted.", "unit", i.service())
		_, err := i.systemctl(ctx, "restart", "--no-block", i.service())
		return err
	}
	return nil
}
