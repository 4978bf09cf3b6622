package provisioner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// observe reads all records of the type and, in one call, all instances. It
// returns all of them or an error. If the hypervisor does not answer, observe
// also writes that into the status of every machine.
func (w *Worker) observe(ctx context.Context, detail bool) ([]Desired, Observed, error) {
	objects, _, err := w.Store.List(ctx, w.kinds()...)
	if err != nil {
		return nil, Observed{}, fmt.Errorf("cannot read the declared machines: %w", err)
	}
	if err := reconcile.Configure(objects, func(r spec.HostRecord) { w.setConfig(ConfigOf(r, w.Type)) }); err != nil {
		return nil, Observed{}, err
	}
	desired, err := Decode(objects, w.Type, w.currentConfig())
	if err != nil {
		return nil, Observed{}, err
	}
	intents, err := w.Store.Intents(ctx)
	if err != nil {
		return nil, Observed{}, fmt.Errorf("cannot read the journal: %w", err)
	}
	instances, err := w.Broker.List(ctx, detail)
	if err != nil {
		if ctx.Err() == nil {
			w.goBlind(ctx, desired, err)
		}
		return nil, Observed{}, err
	}
	w.seeAgain()
	return desired, Observed{Complete: true, Instances: instances, Intents: intents}, nil
}

// kinds returns the kinds of objects that the worker reads and watches.
func (w *Worker) kinds() []string {
	return []string{spec.KindMachine, spec.KindHost, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem}
}

// Decode reads the machines of a type out of a list of objects. A single
// unreadable record fails the whole call, because a plan from partial data
// could delete instances.
func Decode(objects []state.Object, t spec.ContainerType, c Config) ([]Desired, error) {
	around, err := surroundingsOf(objects)
	if err != nil {
		return nil, err
	}
	var desired []Desired
	for _, o := range objects {
		if o.Kind != spec.KindMachine {
			continue
		}
		d := Desired{Name: o.Name, UID: o.UID, Life: o.Life, Revision: o.Revision, Generation: o.Generation}
		if err := o.Decode(&d.Record, &d.Status); err != nil {
			return nil, err
		}
		if d.Record.Machine.Type != t {
			continue
		}
		d.Machine = c.Resolve(d)
		around.attach(&d)
		desired = append(desired, d)
	}
	return desired, nil
}

// goBlind writes into the statuses that the hypervisor does not answer.
func (w *Worker) goBlind(ctx context.Context, desired []Desired, cause error) {
	w.mu.Lock()
	w.blind = true
	busy := maps.Clone(w.busy)
	w.mu.Unlock()
	var writes reconcile.Batch
	for _, d := range desired {
		if !busy[d.Name] {
			writes.Status(d.id(), d.UID, d.Status, blind(d, cause))
		}
	}
	if err := w.Write(ctx, writes); err != nil {
		w.Logger.Warn("The statuses cannot be written.", "error", err)
	}
}

// seeAgain nudges all machines when the hypervisor answers again, so that
// operations that failed meanwhile are retried at once.
func (w *Worker) seeAgain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.blind {
		w.blind = false
		w.nudges.Add(nudgeAll)
		w.Signal()
	}
}

// writeStatuses updates the status of every machine that is not busy, in one
// call. It returns the machines, by uid, that take storage; see confirm.
func (w *Worker) writeStatuses(ctx context.Context, desired []Desired, observed Observed, steps []Step, busy map[string]bool, now time.Time, detail bool) (taking map[string]Desired, err error) {
	taking = map[string]Desired{}
	instances := ownInstances(desired, observed.Instances, w.currentConfig().Owner())
	byUID := map[string][]Step{}
	for _, s := range steps {
		byUID[s.UID] = append(byUID[s.UID], s)
	}
	var writes reconcile.Batch
	for i := range desired {
		d := &desired[i]
		if busy[d.Name] {
			continue
		}
		inst := instances[d.UID]
		status := assess(*d, inst, byUID[d.UID], now)
		status.RestartedFor = pendingRestart(*d, inst, status.RestartedFor, w.Differ.Diff)
		status.FailedStep = remainingFailure(*d, inst, status.FailedStep, w.Differ.Diff)
		status.Uses = uses(*d, inst, !arrival(observed.Intents, d.UID, now).IsZero(), w.Differ.Diff)
		if slices.ContainsFunc(status.Uses, func(object string) bool { return !d.Status.InUse(object) }) {
			taking[d.UID] = *d
		}
		if status.ConsentUsed < d.Generation && !recreateLeft(*d, inst, w.Differ.Diff) {
			status.ConsentUsed = d.Generation
		}
		if detail && inst != nil && inst.Status == containerbroker.StatusRunning && isReady(status) {
			status.Addresses = slices.Clone(inst.Addresses[:min(len(inst.Addresses), containerbroker.MaxAddresses)])
		}
		if inst != nil && inst.Status == containerbroker.StatusRunning {
			status.Boot = w.currentConfig().Host.Boot
		}
		before := any(d.Status)
		if d.Booted {
			before = nil // d.Status is no longer as in the store
		}
		writes.Status(d.id(), d.UID, before, status)
		d.Status = status
	}
	return taking, w.Write(ctx, writes)
}
