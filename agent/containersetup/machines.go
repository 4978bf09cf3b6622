package containersetup

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// stageInterval is the minimum time between writes of the preparation's
// progress to machines' statuses; tellFigures applies if only a figure changed.
// There may be many machines.
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
	var writes []state.Write
	for _, o := range objects {
		var record spec.MachineRecord
		var status spec.MachineStatus
		if err := json.Unmarshal(o.Spec, &record); err != nil {
			return fmt.Errorf("cannot read the record of machine/%s: %w", o.Name, err)
		}
		if len(o.Status) > 0 {
			if err := json.Unmarshal(o.Status, &status); err != nil {
				return fmt.Errorf("cannot read the status of machine/%s: %w", o.Name, err)
			}
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
		if string(spec.Encode(before)) != string(spec.Encode(status)) {
			writes = append(writes, state.Write{ID: o.ID, UID: o.UID, Revision: state.AnyRevision, Status: spec.Encode(status)})
		}
	}
	if len(writes) == 0 {
		return nil
	}
	results, err := w.Store.Write(ctx, state.Each, writes...)
	if err != nil {
		return fmt.Errorf("cannot write statuses: %w", err)
	}
	for i, r := range results {
		if r.Err != nil && !fault.Is(r.Err, fault.NotFound) && !fault.Is(r.Err, fault.Conflict) {
			return fmt.Errorf("cannot write the status of %s: %w", writes[i].Name, r.Err)
		}
	}
	return nil
}
