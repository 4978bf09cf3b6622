package containersetup

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
)

// stageInterval is the minimum time between two writes of the preparation's
// progress to the machines' statuses, because there may be many machines.
// figureInterval applies if only a figure in the message changed.
const (
	stageInterval  = time.Second
	figureInterval = 5 * time.Second
)

// progressFilter decides which progress messages go to the machines' statuses.
type progressFilter struct {
	now  func() time.Time
	last string
	when time.Time
}

func (t *progressFilter) due(message string) bool {
	stage := strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, message)
	wait := stageInterval
	if stage == t.last {
		wait = figureInterval
	}
	if now := t.now(); t.when.IsZero() || now.Sub(t.when) >= wait {
		t.last, t.when = stage, now
		return true
	}
	return false
}

// updateMachines sets the type's machines to unknown, or to pending if they
// have no instance, with the reason why the host is not ready. Instances may
// have changed since they were last seen; the provisioner observes them once it
// runs.
func (w *Worker) updateMachines(ctx context.Context, why string) {
	if w.started.Load() {
		return
	}
	if err := w.writeWaiting(ctx, why); err != nil && ctx.Err() == nil {
		w.Logger.Warn("The status of waiting machines cannot be written.", "type", w.Type, "error", err)
	}
}

func (w *Worker) writeWaiting(ctx context.Context, why string) error {
	objects, _, err := w.Store.List(ctx, spec.KindMachine)
	if err != nil {
		return fmt.Errorf("cannot read the declared machines: %w", err)
	}
	var writes reconcile.Batch
	for _, o := range objects {
		var record spec.MachineRecord
		var status spec.MachineStatus
		if err := o.Decode(&record, &status); err != nil {
			return err
		}
		if record.Machine.Type != w.Type || o.Life != state.Alive {
			continue
		}
		before := status
		switch {
		case status.Instance != nil:
			status.State = spec.MachineUnknown
		case status.State == "" || status.State == spec.MachinePending:
			status.State = spec.MachinePending
		default:
			continue
		}
		status.Message = fmt.Sprintf("waits until the host is ready for %s machines: %s", w.Type, why)
		writes.Status(o.ID, o.UID, before, status)
	}
	return w.Write(ctx, writes)
}
