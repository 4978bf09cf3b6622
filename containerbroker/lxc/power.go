package lxc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hostler/containerbroker"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/oneline"
	"hostler/internal/pause"
)

// SetPower implements containerbroker.Broker.
func (d *Driver) SetPower(ctx context.Context, name string, to containerbroker.Power, timeout time.Duration) error {
	_, err := d.readEntry(name)
	switch to {
	case containerbroker.PowerStart:
		if err == nil {
			err = d.powerOn(ctx, name)
		}
	case containerbroker.PowerStop:
		if err == nil {
			err = d.powerOff(ctx, name, timeout)
		} else if fault.Is(err, fault.NotFound) {
			err = nil
		}
	case containerbroker.PowerRestart:
		if err == nil {
			err = d.powerOff(ctx, name, timeout)
		}
		if err == nil {
			err = d.powerOn(ctx, name)
		}
	default:
		err = fault.New(fault.Invalid, "unknown power state")
	}
	return fault.Explain(err, "cannot %s instance %q", to, name)
}

// startLook is the interval at which powerOn looks at an instance that somebody
// else is starting.
const startLook = 20 * time.Millisecond

func (d *Driver) powerOn(ctx context.Context, name string) error {
	unlock, err := d.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	e, err := d.intact(name)
	switch {
	case err != nil:
		return err
	case e.rootGone:
		return fault.New(fault.Transient, "its root filesystem is missing; it has to be created again")
	}
	for deadline := time.Now().Add(d.opts.StartTimeout); ; {
		s, err := d.stateOf(ctx, name)
		switch {
		case errors.Is(err, errNoMonitor):
			return d.start(ctx, e)
		case err != nil:
			return err
		case s == stateRunning || s == stateThawed || s == stateFrozen:
			file, err := d.freezerOf(ctx, name)
			if err == nil && (s == stateFrozen || isFrozen(file)) {
				err = d.unfreeze(ctx, name, file)
			}
			return err
		case s == stateStarting || s == stateFreezing:
			if time.Now().After(deadline) {
				return fault.New(fault.Transient, "its start has not ended within %s", d.opts.StartTimeout)
			}
			err = pause.For(ctx, startLook)
		default:
			// lxc-start would say that the instance runs, so wait for its end.
			err = d.awaitEnd(ctx, name, time.Now().Add(d.opts.EndTimeout))
		}
		if err != nil {
			return err
		}
	}
}

// start runs lxc-start for a stopped instance. The caller holds its lock.
func (d *Driver) start(ctx context.Context, e entry) error {
	if err := d.sweep(ctx, e); err != nil {
		return err
	}
	if err := d.refresh(ctx, &e); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.LXCBeforeStart); err != nil {
		return err
	}
	log := filepath.Join(e.dir, fileStartLog)
	if err := os.Remove(log); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	code, err := d.startHeld(ctx, e, "-d", "-l", "ERROR", "-o", log)
	if err != nil {
		return err
	}
	if code != 0 {
		text, _ := readFile(log, maxLog)
		return fault.New(fault.Transient, "LXC says: %s", firstError(text))
	}
	if err := failpoint.Hit(failpoint.LXCStartedNotRecorded); err != nil {
		return err
	}
	s, err := d.stateOf(ctx, e.name)
	if errors.Is(err, errNoMonitor) || err == nil && s.status() != containerbroker.StatusRunning {
		return d.died(e.name, containerbroker.StatusStopped)
	}
	if err != nil {
		return err
	}
	return d.plugAll(ctx, e)
}

// maxLog is how much of a log of liblxc is read, in bytes.
const maxLog = 1 << 20

// firstError returns the first error of liblxc's log. Its lines read "lxc-start
// NAME TIME ERROR    source - file:function:line - message".
func firstError(log []byte) string {
	for line := range strings.Lines(string(log)) {
		if _, rest, is := strings.Cut(line, " ERROR "); is {
			if parts := strings.SplitN(rest, " - ", 3); len(parts) == 3 {
				return oneline.Clean(parts[2], 512)
			}
		}
	}
	return "it failed without a reason"
}
