package provisioner

import (
	"context"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// notSeen is the message of a machine that the agent has not looked at since
// the host started.
const notSeen = "not checked yet since the host started"

// Unseen returns the status of a machine after a boot of the host, until the
// agent looks at its instance. The recorded state and addresses may no longer
// hold.
func Unseen(life state.Life, s spec.MachineStatus) spec.MachineStatus {
	if life != state.Alive || s.Instance == nil {
		return s
	}
	s.State, s.Message, s.Addresses, s.Percent = spec.MachineUnknown, notSeen, nil, nil
	return s
}

// markBooted marks the machines whose instances the hypervisor started with the
// host. Their recorded start time and readiness are from the former boot, so
// markBooted resets both.
func markBooted(desired []Desired, instances []containerbroker.Instance, c Config, busy map[string]bool, now time.Time) {
	byUID := ownInstances(desired, instances, c.Owner())
	boot := c.Host.Boot
	for i := range desired {
		d := &desired[i]
		inst := byUID[d.UID]
		if boot == "" || d.Status.Boot == "" || d.Status.Boot == boot || busy[d.Name] || d.Status.Instance == nil ||
			inst == nil || inst.Status != containerbroker.StatusRunning {
			continue
		}
		started := inst.Started
		if started.IsZero() {
			started = now
		}
		d.Booted = true
		d.Status.StartedAt, d.Status.Deaths, d.Status.Boot, d.Status.Addresses = &started, 0, boot, nil
		setReady(&d.Status, false, "HostRestarted", "it was started with the host", now)
	}
}

// recordBooted writes an event for each machine that was started with the host.
func (w *Worker) recordBooted(ctx context.Context, desired []Desired) {
	for _, d := range desired {
		if !d.Booted {
			continue
		}
		w.Record(ctx, state.Event{
			Object: d.id(), UID: d.UID, Level: state.LevelInfo, Reason: "HostRestarted",
			Message: "the host was restarted, and the instance was started with it",
		})
	}
}

// MarkNotAutostarted marks the machines that ran when the host went down and have autostart
// false. They stay stopped until the user starts them or applies a changed
// declaration.
func MarkNotAutostarted(desired []Desired, instances []containerbroker.Instance, owner Owner, boot string) {
	byUID := ownInstances(desired, instances, owner)
	for i := range desired {
		d := &desired[i]
		inst := byUID[d.UID]
		last := d.Status.Boot
		d.NotAutostarted = boot != "" && last != "" && last != boot && d.wantsRunning() && !d.Record.Machine.WantsAutostart() &&
			d.Status.ObservedGeneration >= d.Generation && inst != nil && inst.Status == containerbroker.StatusStopped
	}
}
