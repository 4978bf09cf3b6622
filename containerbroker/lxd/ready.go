package lxd

import (
	"context"
	"fmt"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/containerbroker/guestprobe"
	"hostler/internal/fault"
	"hostler/internal/pause"
)

// WaitReady implements containerbroker.ReadinessProbe. It reads the instance's
// state. If it has to wait for the guest, it runs one command in the guest,
// limited only by ctx, and then reads the state again. A guest without a shell
// is ready once it runs.
func (d *Driver) WaitReady(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) (containerbroker.Readiness, error) {
	found, err := d.waitReady(ctx, m, progress)
	return found, fault.Explain(err, "instance %q is not ready", m.Name)
}

func (d *Driver) waitReady(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) (containerbroker.Readiness, error) {
	var ready containerbroker.Readiness
	c := d.open(ctx, d.opts.RequestTimeout)
	progress.Report("ready", "waiting for "+m.Name, -1)
	before, err := d.stable(c, m.Name)
	if err != nil {
		return ready, err
	}
	d.inits.see(m.Name, before.State.Pid)
	if init, plain := guestprobe.InitOf(d.opts.Proc, before.State.Pid); plain && !guestprobe.ExpectsAddress(m) {
		return judge("init "+init, m, before.State, d.opts.AddressTimeout)
	}
	report, execErr := d.ask(ctx, m)
	if ctx.Err() != nil {
		return ready, fmt.Errorf("%w while waiting for its init, cloud-init or address", ctx.Err())
	}
	after, err := d.running(c, m.Name)
	if err != nil {
		return ready, err
	}
	if after.State.Pid != before.State.Pid {
		return ready, fault.New(fault.Transient, "its init was started again meanwhile")
	}
	if execErr != nil && !fault.Is(execErr, fault.Invalid) { // Invalid means that the guest has no shell
		return ready, execErr
	}
	return judge(report, m, after.State, d.opts.AddressTimeout)
}

func judge(report string, m containerbroker.Machine, s *api.InstanceState, timeout time.Duration) (containerbroker.Readiness, error) {
	ready := guestprobe.Report(report)
	ready.Addresses = addressesOf(s)
	return ready, guestprobe.Judge(m, report, ready, timeout)
}

// stable returns the state of an instance that has run for Options.StableTime
// since its last start. If this driver has just started the instance, stable
// waits before it reads the state.
func (d *Driver) stable(c *client, name string) (found api.InstanceFull, err error) {
	rest := d.opts.StableTime - d.own.sinceStart(name)
	for pid := int64(0); ; pid = found.State.Pid {
		if rest > 0 {
			if err := pause.For(c.ctx, rest); err != nil {
				return found, err
			}
		}
		if found, err = d.running(c, name); err != nil {
			return found, err
		}
		// If the clock was set since the start, this time is wrong, so wait for
		// the same init only once.
		rest = d.opts.StableTime - time.Since(startedAt(found))
		if rest <= 0 || found.State.Pid == pid {
			return found, nil
		}
	}
}

// ask runs the script in the guest and returns its output. If the script does
// not reach its end, e.g. because the guest's init has just died, ask returns a
// transient error with the last lines of the console, because a partial report
// could look like the report of a guest that is ready.
func (d *Driver) ask(ctx context.Context, m containerbroker.Machine) (string, error) {
	var report guestprobe.Output
	code, err := d.exec(ctx, m.Name, containerbroker.ExecRequest{
		Command: guestprobe.Command(m, d.opts.AddressTimeout),
		Stdout:  &report,
	})
	noShell := code == containerbroker.ExitNotExecutable || code == containerbroker.ExitNotFound
	if err == nil && code != 0 && !noShell || fault.Is(err, fault.Invalid) && report.String() != "" {
		err = containerbroker.WithConsole(fault.New(fault.Transient, "the check in the guest was broken off"), d.consoleTail(ctx, m.Name))
	}
	return report.String(), err
}

// running returns the state of an instance. If it does not run, running returns
// a transient error with the last lines of its console.
func (d *Driver) running(c *client, name string) (api.InstanceFull, error) {
	found, err := d.readState(c, name)
	if err != nil {
		return found, err
	}
	status := statusOf(found.StatusCode)
	if status == containerbroker.StatusRunning && (found.State == nil || found.State.Pid <= 0) {
		status = containerbroker.StatusStopped // LXD has not noticed yet
	}
	if status != containerbroker.StatusRunning {
		return found, d.died(c.ctx, name, status)
	}
	return found, nil
}

// startedAt returns when LXD started the instance. If that time is in the
// future, because the clock was set, it returns the present time.
func startedAt(i api.InstanceFull) time.Time {
	if now := time.Now(); i.LastUsedAt.After(now) {
		return now
	}
	return i.LastUsedAt
}
