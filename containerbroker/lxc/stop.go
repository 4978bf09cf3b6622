package lxc

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
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
		freezer, err := d.freezerOf(ctx, name)
		if err == nil && isFrozen(freezer) {
			err = d.unfreeze(ctx, name, freezer)
		}
		if err != nil && !errors.Is(err, errNoMonitor) {
			return err
		}
		timeout = (timeout + time.Second - 1).Truncate(time.Second)
		_, err = d.tool(ctx, timeout+d.opts.EndTimeout, paths.LXCStop, name, "-t", strconv.Itoa(int(timeout/time.Second)), "--nokill")
		if err != nil {
			return err
		}
		if s, err := d.stateOf(ctx, name); err == nil && s != stateRunning {
			err = d.awaitEnd(ctx, name, time.Now().Add(d.opts.EndTimeout))
			if err == nil || ctx.Err() != nil {
				return err
			}
		}
	}
	return d.kill(ctx, name)
}

// tool runs a program of LXC for an instance and returns its exit code. It bounds
// the run, because such a program waits for ever for a monitor that does not answer.
func (d *Driver) tool(ctx context.Context, limit time.Duration, path, name string, args ...string) (int, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	code, err := d.opts.Host.Attach(limited, run.Attached{Path: path, Args: append([]string{"-P", d.opts.Path, "-n", name}, args...), Dir: "/"})
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = fault.New(fault.Transient, "%s has not ended within %s", filepath.Base(path), limit)
	}
	return code, err
}

// kill stops an instance by force and waits for the end of its monitor. If the
// guest is just rebooting, the monitor goes on, so kill asks it again. A frozen
// guest does not end on cgroup v1 before it is thawed.
func (d *Driver) kill(ctx context.Context, name string) error {
	for deadline := time.Now().Add(d.opts.EndTimeout); ; {
		freezer, _ := d.freezerOf(ctx, name)
		_, err := d.ask(ctx, name, cmdStop, nil)
		if errors.Is(err, errNoMonitor) {
			return nil
		}
		if err != nil && !errors.Is(err, errNoAnswer) {
			return err
		}
		if isFrozen(freezer) {
			_ = thaw(freezer) // it fails if the guest has just ended
		}
		if err := d.awaitEnd(ctx, name, deadline); err != nil {
			return err
		}
	}
}

// awaitEnd waits until the monitor of an instance has ended, by an idle
// connection that the monitor holds open until then.
func (d *Driver) awaitEnd(ctx context.Context, name string, deadline time.Time) error {
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
	if err := idle.SetReadDeadline(deadline); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, idle)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.Transient, "its monitor has not ended within %s", d.opts.EndTimeout)
	}
	return nil // any other end of the connection is the end of the monitor
}
