package lxc

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
)

// state is liblxc's state of an instance.
type state uint64

// The states, in liblxc's order.
const (
	stateStopped state = iota
	stateStarting
	stateRunning
	stateStopping
	stateAborting
	stateFreezing
	stateFrozen
	stateThawed
)

// status converts a state that a monitor reported.
func (s state) status() containerbroker.Status {
	switch s {
	case stateRunning, stateThawed:
		return containerbroker.StatusRunning
	case stateFrozen:
		return containerbroker.StatusFrozen
	case stateStarting, stateStopping, stateAborting, stateFreezing:
		return containerbroker.StatusBusy
	case stateStopped: // the monitor is about to end
		return containerbroker.StatusBusy
	}
	return containerbroker.StatusUnknown
}

// stateOf asks the monitor of an instance. It fails with errNoMonitor if the
// instance is stopped.
func (d *Driver) stateOf(ctx context.Context, name string) (state, error) {
	a, err := d.ask(ctx, name, cmdState, nil)
	return state(a.word), err
}

// pidOf returns the process id of an instance's init.
func (d *Driver) pidOf(ctx context.Context, name string) (int, error) {
	a, err := d.ask(ctx, name, cmdInitPID, nil)
	if err == nil && (int64(a.word) <= 1 || a.word > 1<<30) {
		err = errNoMonitor
	}
	return int(a.word), err
}

// limitCgroup returns the folder of the cgroup that holds an instance's limits.
// On cgroup v1, controller selects the hierarchy. The only one of v2 must be asked
// for by a controller that it has, else the monitor does not answer; the
// initialiser requires memory.
func (d *Driver) limitCgroup(ctx context.Context, name, controller string) (string, error) {
	asked := controller
	if d.unified() {
		controller, asked = "", "memory"
	}
	a, err := d.ask(ctx, name, cmdLimitCgroup, append([]byte(asked), 0))
	if err != nil {
		return "", err
	}
	return d.cgroupPath(controller, string(a.data))
}

// look returns an instance's status. An instance whose monitor hangs is alone
// unknown.
func (d *Driver) look(ctx context.Context, e entry) (containerbroker.Status, error) {
	s, err := d.stateOf(ctx, e.name)
	switch {
	case err == nil && s.status() == containerbroker.StatusRunning && d.frozen(e):
		return containerbroker.StatusFrozen, nil
	case err == nil:
		return s.status(), nil
	case errors.Is(err, errNoMonitor):
		return containerbroker.StatusStopped, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, errNoAnswer), errors.Is(err, unix.EAGAIN): // EAGAIN: it accepts no more connections
		return containerbroker.StatusUnknown, nil
	}
	return "", fmt.Errorf("cannot ask the monitor of %q: %w", e.name, err)
}
