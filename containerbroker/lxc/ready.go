package lxc

import (
	"context"
	"errors"
	"fmt"

	"hostler/containerbroker"
	"hostler/containerbroker/guestprobe"
	"hostler/internal/fault"
	"hostler/internal/pause"
)

// WaitReady implements containerbroker.ReadinessProbe. It runs one command in
// the guest, limited only by ctx. A guest without a shell is ready once it runs.
func (d *Driver) WaitReady(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) (containerbroker.Readiness, error) {
	found, err := d.waitReady(ctx, m, progress)
	return found, fault.Explain(err, "instance %q is not ready", m.Name)
}

func (d *Driver) waitReady(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) (containerbroker.Readiness, error) {
	var ready containerbroker.Readiness
	if err := ctx.Err(); err != nil {
		return ready, err
	}
	progress.Report("ready", "waiting for "+m.Name, -1)
	pid, err := d.stable(ctx, m.Name)
	if err != nil {
		return ready, err
	}
	if init, plain := guestprobe.InitOf(d.opts.Proc, int64(pid)); plain && !guestprobe.ExpectsAddress(m) {
		return d.judge(ctx, m, "init "+init, pid)
	}
	report, execErr := d.probe(ctx, m)
	if ctx.Err() != nil {
		return ready, fmt.Errorf("%w while waiting for its init, cloud-init or address", ctx.Err())
	}
	after, err := d.alive(ctx, m.Name)
	if err != nil {
		return ready, err
	}
	if after != pid {
		return ready, fault.New(fault.Transient, "its init was started again meanwhile")
	}
	if execErr != nil {
		return ready, execErr
	}
	if report == "" { // the guest has no shell
		comm, _ := readFile(d.process(after, "comm"), 64)
		report = "init " + string(comm)
	}
	return d.judge(ctx, m, report, after)
}

func (d *Driver) judge(ctx context.Context, m containerbroker.Machine, report string, pid int) (containerbroker.Readiness, error) {
	ready := guestprobe.Report(report)
	ready.Addresses = d.addresses(pid)
	if err := guestprobe.Judge(m, report, ready, d.opts.AddressTimeout); err != nil {
		return ready, err
	}
	ready.SSH, ready.NoSSH = guestprobe.SSH(ctx, report, ready.Addresses)
	return ready, ctx.Err()
}

// stable returns the process id of an init that has run for StableTime.
func (d *Driver) stable(ctx context.Context, name string) (int, error) {
	for {
		pid, err := d.alive(ctx, name)
		if err != nil {
			return 0, err
		}
		rest := d.opts.StableTime - d.age(pid)
		if rest <= 0 {
			return pid, nil
		}
		if err := pause.For(ctx, rest); err != nil {
			return 0, err
		}
	}
}

// alive returns the process id of an instance's init. If the instance does not
// run, alive returns a transient error with the last lines of its console.
func (d *Driver) alive(ctx context.Context, name string) (int, error) {
	e, err := d.readEntry(name)
	if err != nil {
		return 0, err
	}
	status, err := d.look(ctx, e)
	if err != nil {
		return 0, err
	}
	if status == containerbroker.StatusRunning {
		pid, err := d.pidOf(ctx, name)
		if err == nil && d.age(pid) > 0 {
			return pid, nil
		}
		if err != nil && !errors.Is(err, errNoMonitor) {
			return 0, err
		}
		status = containerbroker.StatusStopped // its monitor is about to end
	}
	return 0, d.died(name, status)
}

// died returns the error of an instance that does not run.
func (d *Driver) died(name string, status containerbroker.Status) error {
	return containerbroker.WithConsole(fault.New(fault.Transient, "it is %s", status), d.consoleTail(name))
}

// probe runs the script in the guest and returns its output. If the script does
// not reach its end, a partial report could look like that of a ready guest.
func (d *Driver) probe(ctx context.Context, m containerbroker.Machine) (string, error) {
	var report guestprobe.Output
	code, err := d.exec(ctx, m.Name, containerbroker.ExecRequest{
		Command: guestprobe.Command(m, d.opts.AddressTimeout),
		Stdout:  &report,
	})
	noShell := code == containerbroker.ExitNotExecutable || code == containerbroker.ExitNotFound
	if err == nil && code != 0 && !noShell {
		err = containerbroker.WithConsole(fault.New(fault.Transient, "the check in the guest was broken off"), d.consoleTail(m.Name))
	}
	return report.String(), err
}
