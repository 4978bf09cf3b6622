// Package migrate moves machines from one container type to another with their
// data, e.g. from LXD to Incus. A machine's record holds the phase of its
// migration. An agent that starts after a crash copies the instance again, or
// completes the migration if the machine already has the new type.
package migrate

import (
	"context"
	"fmt"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// stopTimeout is the time that an instance has to shut down.
const stopTimeout = 30 * time.Second

// ackTimeout is the time that the provisioner has to leave a machine alone.
const ackTimeout = 5 * time.Minute

// Hypervisors gives access to the instances of all container types.
type Hypervisors struct {
	// Namespace is the namespace of the agent's stamps.
	Namespace string
	Broker    func(t spec.ContainerType) (containerbroker.Broker, error)
	// MadeAs returns the container type for which an instance of the type t was
	// made, if it is another type, or "".
	MadeAs func(i containerbroker.Instance, t spec.ContainerType) spec.ContainerType
	// Movable returns why an instance cannot be copied, or nil.
	Movable func(ctx context.Context, t spec.ContainerType, instance string) error
	// Transfer copies a stopped instance that bears the stamp, and compares the
	// copy with the original. The copy is stopped and bears the stamp too.
	Transfer func(ctx context.Context, from, to spec.ContainerType, instance string, stamp containerbroker.Stamp) error
}

// Recorder records the progress of a machine's migration durably.
type Recorder func(ctx context.Context, name, uid string, m spec.Migration) error

// Worker carries out the migrations, one machine at a time.
type Worker struct {
	*reconcile.Frame
	Hypervisors
	record Recorder
	moving reconcile.Cache[bool] // machines with an open migration
}

// New returns a worker. Run starts it.
func New(c reconcile.Common, h Hypervisors, record Recorder) *Worker {
	return &Worker{Frame: reconcile.NewFrame(c), Hypervisors: h, record: record, moving: reconcile.Cache[bool]{}}
}

// Run carries out migrations until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	return w.Frame.Run(ctx, reconcile.Work{
		Objects: "machines", Kinds: kinds, Pass: w.pass,
	})
}

// pass takes each migration as far as it goes now. A machine waits until the
// machine before it runs under its new type. Every phase may delete an instance,
// so all of them wait while nothing may be deleted.
func (w *Worker) pass(ctx context.Context) (next time.Time, err error) {
	machines, err := w.open(ctx)
	if err != nil {
		return next, err
	}
	busy := false
	for _, m := range machines {
		switch {
		case m.withheld != "": // a change of the host's record wakes the worker
			busy = true
			if failed := w.wait(ctx, m, "waits for "+m.withheld); failed != nil {
				err = failed
			}
		case m.Moved():
			busy = true
			if failed := w.finish(ctx, m); failed != nil {
				err = failed
			}
		case m.Moving():
			busy = true
			if m.Life == state.Alive && !m.observed() && w.Now().Sub(m.Began) < ackTimeout {
				next = reconcile.Earliest(next, m.Began.Add(ackTimeout))
				continue
			}
			if failed := w.move(ctx, m); failed != nil && ctx.Err() == nil {
				err = w.undo(ctx, m, failed)
			}
		case !busy:
			if busy, err = w.begin(ctx, m); err != nil {
				return next, err
			}
		}
	}
	return next, err
}

// begin takes a machine out of its provisioner's care if nothing speaks against
// its move.
func (w *Worker) begin(ctx context.Context, m Machine) (begun bool, err error) {
	switch {
	case m.Life != state.Alive:
		return false, w.fail(ctx, m, fault.New(fault.Conflict, "the machine is being removed"))
	case m.target.State == "error":
		return false, w.fail(ctx, m, fault.New(fault.NeedsOperator, "the host is not ready for %s machines: %s", m.To, m.target.Message))
	case m.target.State != "ready": // a change of the type's status wakes the worker
		return false, w.wait(ctx, m, fmt.Sprintf("waits until the host is ready for %s machines", m.To))
	}
	if err := m.CheckImage(m.Record.Machine.Image); err != nil {
		return false, w.fail(ctx, m, err)
	}
	if err := w.Movable(ctx, m.From, m.Instance()); err != nil {
		return false, w.fail(ctx, m, err)
	}
	began := w.Now()
	original, err := w.original(ctx, m)
	if err == nil {
		_, err = w.left(ctx, m, *original)
	}
	if err != nil {
		return false, w.fail(ctx, m, err)
	}
	m.Phase, m.Began, m.Waits = spec.MigrationMoving, began, ""
	return true, w.record(ctx, m.Name, m.UID, m.Migration)
}

// wait records the reason why a machine waits for its move; `hostler migrate`
// shows it. The phases after waiting keep their records, because the provisioner
// would have to see each change.
func (w *Worker) wait(ctx context.Context, m Machine, why string) error {
	if m.Phase != spec.MigrationWaiting || m.Waits == why {
		return nil
	}
	m.Waits = why
	return w.record(ctx, m.Name, m.UID, m.Migration)
}

// move copies the machine's instance and gives the machine its new type. All of
// it can be done again.
func (w *Worker) move(ctx context.Context, m Machine) error {
	switch {
	case m.Life != state.Alive:
		return fault.New(fault.Conflict, "the machine is being removed")
	case !m.observed():
		return fault.New(fault.Transient, "the %s provisioner does not answer", m.From)
	}
	if err := m.CheckImage(m.Record.Machine.Image); err != nil {
		return err
	}
	from, err := w.Broker(m.From)
	if err != nil {
		return err
	}
	original, err := w.original(ctx, m)
	if err != nil {
		return err
	}
	if err := w.removeCopy(ctx, m, *original); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.MigrateBegun); err != nil {
		return err
	}
	// Without autostart neither the original nor the copy starts with the host.
	change := containerbroker.Machine{Name: original.Name, Stamp: *original.Stamp}
	if change.Stamp.Record, err = retyped(original.Stamp.Record, m.From); err != nil {
		return err
	}
	if err := from.Update(ctx, change, []containerbroker.Change{{Field: containerbroker.FieldAutostart}, {Field: containerbroker.FieldRecord}}); err != nil {
		return err
	}
	if err := from.SetPower(ctx, original.Name, containerbroker.PowerStop, stopTimeout); err != nil {
		return err
	}
	stopped := w.Now()
	if err := failpoint.Hit(failpoint.MigrateStopped); err != nil {
		return err
	}
	if err := w.Transfer(ctx, m.From, m.To, original.Name, *original.Stamp); err != nil {
		return err
	}
	if now, err := w.original(ctx, m); err != nil {
		return err
	} else if started(now, stopped) {
		return fault.New(fault.Conflict, "the instance was started during its copy")
	}
	if err := failpoint.Hit(failpoint.MigrateCompared); err != nil {
		return err
	}
	// From here on, the original is a moved instance, which no harvest deletes and
	// no recovery of a lost store takes for the machine's instance.
	if change.Stamp.Record, err = retyped(original.Stamp.Record, m.To); err != nil {
		return err
	}
	if err := from.Update(ctx, change, []containerbroker.Change{{Field: containerbroker.FieldRecord}}); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.MigrateRestamped); err != nil {
		return err
	}
	m.Phase = spec.MigrationMoved
	if err := w.record(ctx, m.Name, m.UID, m.Migration); err != nil {
		return err
	}
	w.event(ctx, m, state.LevelInfo, "Migrated", fmt.Sprintf("copied from %s to %s; all files are equal", m.From, m.To))
	return failpoint.Hit(failpoint.MigrateCommitted)
}

// finish removes the original once the machine is as declared.
func (w *Worker) finish(ctx context.Context, m Machine) error {
	if m.Life == state.Alive && !m.settled() {
		return nil
	}
	if err := failpoint.Hit(failpoint.MigrateReady); err != nil {
		return err
	}
	if err := w.removeOriginal(ctx, m); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.MigrateRemoved); err != nil {
		return err
	}
	m.Phase = spec.MigrationDone
	return w.record(ctx, m.Name, m.UID, m.Migration)
}

// undo removes the copy, if the original is there, and returns the machine to its
// provisioner, which starts the original again.
func (w *Worker) undo(ctx context.Context, m Machine, cause error) error {
	if now, err := w.Store.Get(ctx, m.ID); err != nil {
		return err
	} else if err := now.Decode(&m.Record, nil); err != nil {
		return err
	}
	if !m.Record.Migration.Moving() {
		return cause // the machine has its new type already
	}
	original, err := w.original(ctx, m)
	if err == nil {
		err = w.removeCopy(ctx, m, *original)
	}
	if err != nil && !fault.Is(err, fault.Conflict) && err.Error() != cause.Error() {
		cause = fmt.Errorf("%w (and a copy in %s stays: %v)", cause, m.To, err)
	}
	return w.fail(ctx, m, cause)
}

func (w *Worker) fail(ctx context.Context, m Machine, cause error) error {
	m.Phase, m.Waits, m.Error = spec.MigrationFailed, "", fault.Clip(cause.Error(), 2048)
	if err := w.record(ctx, m.Name, m.UID, m.Migration); err != nil {
		return err
	}
	w.event(ctx, m, state.LevelError, "MigrationFailed", fmt.Sprintf("the machine stays of type %s: %v", m.From, cause))
	return nil
}

func (w *Worker) event(ctx context.Context, m Machine, level, reason, message string) {
	w.Record(ctx, state.Event{Object: m.ID, UID: m.UID, Level: level, Reason: reason, Message: message})
}
