package lxd

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

const (
	lxdSocket  = "lxd.socket"
	lxdService = "lxd.service"
)

func (i *Initialiser) underSystemd() bool {
	_, err := os.Stat(i.opts.Paths.SystemdRunning())
	return err == nil && i.opts.LXDDir == ""
}

// startUnit starts Debian's socket-activated units. It uses --no-block, because
// the service's start job waits until LXD is ready; waitReady does that with
// progress messages.
func (i *Initialiser) startUnit(ctx context.Context) (func() error, error) {
	if i.socket() == "" || i.startable(i.socket()) {
		for _, args := range [][]string{{"start", lxdSocket}, {"start", "--no-block", lxdService}} {
			if _, err := i.systemctl(ctx, args...); err != nil {
				return nil, fault.New(fault.Transient, "cannot start LXD: %w", err)
			}
		}
	}
	return func() error { return i.unitLives(ctx) }, nil
}

func (i *Initialiser) systemctl(ctx context.Context, args ...string) (run.Result, error) {
	return i.opts.Runner.Run(ctx, run.Command{Path: paths.Systemctl, Args: args, Timeout: time.Minute})
}

// unitLives fails once the service has failed. If the daemon ended before it
// answered, Debian's ExecStartPost would wait ten minutes more, and so would
// every client that starts the unit. unitLives then restarts the unit.
func (i *Initialiser) unitLives(ctx context.Context) error {
	shown, err := i.systemctl(ctx, "show", "--property=ActiveState,SubState,MainPID", lxdService)
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
		return errors.New("lxd.service failed; see `journalctl -u lxd`")
	case unit["SubState"] == "start-post" && unit["MainPID"] == "0":
		i.log.Warn("LXD ended before it answered; its unit is restarted.", "unit", lxdService)
		_, err := i.systemctl(ctx, "restart", "--no-block", lxdService)
		return err
	}
	return nil
}
