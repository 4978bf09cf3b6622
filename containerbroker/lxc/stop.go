package lxc

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/paths"
)

// powerOff asks the guest to shut down, and stops the instance by force if it
// still runs after timeout, rounded up to whole seconds. If timeout is 0, it
// uses force at once.
func (d *Driver) powerOff(ctx context.Context, name string, timeout time.Duration) error {
	idle, err := d.connect(ctx, name)
	if errors.Is(err, errNoMonitor) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = idle.Close()
	if err := failpoint.Hit(failpoint.LXCStopping); err != nil {
		return err
	}
	if timeout > 0 {
		if s, err := d.stateOf(ctx, name); err == nil && s == stateFrozen {
			if err := d.unfreeze(ctx, name); err != nil {
				return err
			}
		}
		seconds := strconv.Itoa(int((timeout + time.Second - 1) / time.Second))
		if _, err := d.tool(ctx, paths.LXCStop, name, "-t", seconds, "--nokill"); err != nil {
			return err
		}
		if s, err := d.stateOf(ctx, name); err == nil && s != stateRunning {
			err = d.awaitEnd(ctx, name, d.opts.EndTimeout)
			if err == nil || ctx.Err() != nil {
				return err
			}
		}
	}
	return d.kill(ctx, name)
}

// kill stops an instance by force and waits for the end of its monitor.
func (d *Driver) kill(ctx context.Context, name string) error {
	_, err := d.ask(ctx, name, cmdStop, nil)
	if err != nil && !errors.Is(err, errNoMonitor) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return d.awaitEnd(ctx, name, d.opts.EndTimeout)
}

// awaitEnd waits until the monitor of an instance has ended, by an idle
// connection that the monitor holds open until then.
func (d *Driver) awaitEnd(ctx context.Context, name string, limit time.Duration) error {
	idle, err := d.connect(ctx, name)
	if errors.Is(err, errNoMonitor) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = idle.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = idle.SetReadDeadline(time.Now()) })
	defer stop()
	if err := idle.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, idle)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.Transient, "its monitor has not ended within %s", limit)
	}
	return nil // any other end of the connection is the end of the monitor
}
