package provisioner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// observe reads all records of the type and, in one call, all instances. It
// returns either all of them or an error. If the hypervisor does not answer,
// observe also says so in the status of every machine that is not in busy.
func (w *Worker) observe(ctx context.Context, detail bool, busy map[string]bool) ([]Desired, Observed, error) {
	objects, _, err := w.Store.List(ctx, w.kinds()...)
	if err != nil {
		return nil, Observed{}, fmt.Errorf("cannot read the declared machines: %w", err)
	}
	if err := reconcile.Configure(objects, func(r spec.HostRecord) { w.setConfig(ConfigOf(r, w.Type)) }); err != nil {
		return nil, Observed{}, err
	}
	desired, err := w.decoder.desired(objects, w.Type, w.currentConfig())
	if err != nil {
		return nil, Observed{}, err
	}
	intents, err := w.Store.Intents(ctx)
	if err != nil {
		return nil, Observed{}, fmt.Errorf("cannot read the journal: %w", err)
	}
	began := w.Now()
	instances, err := w.Broker.List(ctx, detail)
	if err != nil {
		if ctx.Err() == nil {
			w.goBlind(ctx, desired, busy, err)
		}
		return nil, Observed{}, err
	}
	w.mu.Lock()
	w.listings.took(w.Now().Sub(began), detail)
	w.mu.Unlock()
	w.seeAgain()
	return desired, Observed{Complete: true, Instances: instances, Intents: intents}, nil
}

// kinds returns the kinds of objects that the worker reads and watches.
func (w *Worker) kinds() []string {
	return []string{spec.KindMachine, spec.KindHost, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem}
}

// Decode decodes the machines of a type from a list of objects. A single
// unreadable record makes Decode fail, because a plan from partial data could
// delete instances.
func Decode(objects []state.Object, t spec.ContainerType, c Config) ([]Desired, error) {
	return newDecoder().desired(objects, t, c)
}

// decoder caches the decoded machines and the objects that they refer to.
type decoder struct {
	machines reconcile.Cache[Desired] // without the fields that depend on other objects
	networks reconcile.Cache[network]
	storage  reconcile.Cache[spec.StorageStatus]
}

func newDecoder() decoder {
	return decoder{reconcile.Cache[Desired]{}, reconcile.Cache[network]{}, reconcile.Cache[spec.StorageStatus]{}}
}

func (k decoder) desired(objects []state.Object, t spec.ContainerType, c Config) ([]Desired, error) {
	around, err := k.surroundings(objects)
	if err != nil {
		return nil, err
	}
	var desired []Desired
	for _, o := range objects {
		if o.Kind != spec.KindMachine {
			continue
		}
		d, err := k.machines.Decode(o, func(o state.Object) (Desired, error) { return decodeMachine(o, t) })
		if err != nil {
			return nil, err
		}
		if d.Record.Machine.Type != t {
			continue
		}
		d.Machine = c.Resolve(d)
		around.attach(&d)
		desired = append(desired, d)
	}
	k.keep(objects)
	return desired, nil
}

func (k decoder) keep(objects []state.Object) {
	k.machines.Keep(objects)
	k.networks.Keep(objects)
	k.storage.Keep(objects)
}

// decodeMachine returns an empty value for a machine of another type than t.
func decodeMachine(o state.Object, t spec.ContainerType) (Desired, error) {
	d := Desired{Name: o.Name, UID: o.UID, Life: o.Life, Revision: o.Revision, Generation: o.Generation}
	if err := o.Decode(&d.Record, &d.Status); err != nil || d.Record.Machine.Type != t {
		return Desired{}, err
	}
	if former := d.Status.FormerConsentUsed; former > 0 {
		d.Status.FormerConsentUsed, d.Amended = 0, true
		if former >= o.Generation {
			d.Status.ConsentsUsed = d.Record.Consents
		}
	}
	return d, nil
}

// goBlind says in the status of every machine that the hypervisor does not
// answer. It leaves out the machines that were busy before desired was read: an
// operation that has ended since wrote a newer status, e.g. the new instance.
func (w *Worker) goBlind(ctx context.Context, desired []Desired, busy map[string]bool, cause error) {
	w.mu.Lock()
	w.blind = true
	w.mu.Unlock()
	var writes reconcile.Batch
	for _, d := range desired {
		if !busy[d.Name] {
			writes.Status(d.id(), d.UID, d.Status, blind(&d, cause))
		}
	}
	if err := w.Write(ctx, writes); err != nil {
		w.Logger.Warn("The statuses cannot be written.", "error", err)
	}
}

// seeAgain nudges all machines if the hypervisor did not answer before.
// Operations that failed meanwhile are then retried at once.
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
// call. It returns, by uid, the machines that begin to use storage or NICs in
// this pass; see confirm().
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
		status := assess(d, inst, byUID[d.UID], now)
		if d.migrates() { // the instance keeps the storage and NICs that it uses
			writes.Status(d.id(), d.UID, d.Status, status)
			d.Status = status
			continue
		}
		if inst != nil && status.RestartBegun != nil && !restartDue(d, inst, now) {
			status.RestartsDone, status.RestartBegun = d.Record.RestartRequest, nil
		}
		readable := inst == nil || !inst.Unreadable
		if readable {
			status.RestartedFor = pendingRestart(d, inst, status.RestartedFor, w.Differ.Diff)
			status.FailedStep = remainingFailure(d, inst, status.FailedStep, w.Differ.Diff)
		}
		status.Uses, status.UsesNICs = uses(d, inst, !arrival(observed.Intents, d.UID, now).IsZero(), w.Differ.Diff)
		if slices.ContainsFunc(slices.Concat(status.Uses, status.UsesNICs), func(object string) bool { return !d.Status.InUse(object) }) {
			taking[d.UID] = *d
		}
		if readable {
			useConsents(d, inst, &status, w.Differ.Diff)
		}
		if detail && inst != nil && inst.Status == containerbroker.StatusRunning && isReady(&status) {
			status.Addresses = slices.Clone(inst.Addresses[:min(len(inst.Addresses), containerbroker.MaxAddresses)])
		}
		if inst != nil && inst.Status == containerbroker.StatusRunning {
			status.Boot = w.currentConfig().Host.Boot
		}
		before := any(d.Status)
		if d.Booted || d.Amended {
			before = nil // d.Status has changed since the read
		}
		writes.Status(d.id(), d.UID, before, status)
		d.Status = status
	}
	w.mu.Lock()
	clear(w.wrote)
	for _, write := range writes {
		w.wrote[write.Name] = w.Now()
	}
	w.mu.Unlock()
	return taking, w.Write(ctx, writes)
}
