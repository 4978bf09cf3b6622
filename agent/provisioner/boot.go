package provisioner

import (
	"context"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// notSeen is the message of a machine whose instance the agent has not read
// since the host started.
const notSeen = "not checked yet since the host started"

// Unseen returns the status that a machine has from a boot of the host until
// the agent reads its instance. Until then the recorded state and addresses may
// be wrong.
func Unseen(life state.Life, s spec.MachineStatus) spec.MachineStatus {
	if life != state.Alive || s.Instance == nil {
		return s
	}
	s.State, s.Message, s.Addresses, s.Percent = spec.MachineUnknown, notSeen, nil, nil
	return s
}

// markBooted marks the machines whose instances the hypervisor started with the
// host. The start time and readiness in their status are from the former boot,
// so markBooted resets both.
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

// recordBooted writes an event for each machine that markBooted() marked.
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

// MarkNotAutostarted marks the machines with autostart false that ran when the host
// went down. They stay stopped until the user starts them or applies a changed
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
