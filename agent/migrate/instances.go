package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// removeCopy removes the copy that an earlier attempt left.
func (w *Worker) removeCopy(ctx context.Context, m Machine, original containerbroker.Instance) error {
	made, err := w.left(ctx, m, original)
	if err != nil || made == nil {
		return err
	}
	to, err := w.Broker(m.To)
	if err != nil {
		return err
	}
	return to.Delete(ctx, made.Name, *made.Stamp)
}

// left returns the copy that an earlier attempt left, or nil if there is none. It
// refuses an instance that may hold other data than the original: one that the user
// made or started, or one that has become the machine's instance, e.g. after the store
// was replaced by an older copy.
func (w *Worker) left(ctx context.Context, m Machine, original containerbroker.Instance) (*containerbroker.Instance, error) {
	to, err := w.Broker(m.To)
	if err != nil {
		return nil, err
	}
	made, err := w.find(ctx, to, m)
	if err != nil || made == nil {
		return nil, err
	}
	if w.MadeAs(*made, m.To) != m.From || InUse(*made, original, m.Began) {
		return nil, fault.New(fault.NeedsOperator, "%s/%s is in use and no unused copy: delete it with the tools of %s, or release the machine and adopt it", m.To, made.Name, m.To)
	}
	return made, nil
}

// removeOriginal removes the original of a moved machine. It keeps an original
// that may hold data which the machine lacks, and says so in an event.
func (w *Worker) removeOriginal(ctx context.Context, m Machine) error {
	found, err := w.original(ctx, m)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) { // it is gone
		return nil
	}
	if err != nil {
		return err
	}
	why := ""
	switch made := m.Status.Instance; {
	case started(found, m.Began):
		why = "was started after the copy"
	case made == nil || made.Token != found.Stamp.Token:
		why = "has data that the machine lacks, since the copy was replaced"
	}
	if why != "" {
		w.event(ctx, m, state.LevelWarn, "OriginalKept", fmt.Sprintf("%s/%s is kept, because it %s: delete it with the tools of %s", m.From, found.Name, why, m.From))
		return nil
	}
	from, err := w.Broker(m.From)
	if err != nil {
		return err
	}
	return from.Delete(ctx, found.Name, *found.Stamp)
}

// InUse reports whether the user made or started a copy of a machine's instance. began
// is the time of the agent's last attempt to copy it, or zero. The hypervisor gives a
// copy the original's time of the last start, which is before the attempt, or that of
// the original now.
func InUse(made, original containerbroker.Instance, began time.Time) bool {
	return began.IsZero() || started(&made, began) && (runs(&made) || !made.Started.Equal(original.Started))
}

func runs(i *containerbroker.Instance) bool {
	return i.Status == containerbroker.StatusRunning || i.Status == containerbroker.StatusFrozen
}

// started reports whether an instance runs, or was started after the time.
func started(i *containerbroker.Instance, since time.Time) bool {
	return runs(i) || i.Started.After(since)
}

// original returns the machine's instance that is to move. It fails if there is
// none, since the copy is then the only instance with the machine's data.
func (w *Worker) original(ctx context.Context, m Machine) (*containerbroker.Instance, error) {
	from, err := w.Broker(m.From)
	if err != nil {
		return nil, err
	}
	found, err := w.find(ctx, from, m)
	if err == nil && found == nil {
		err = fault.New(fault.NotFound, "the instance of the machine is gone")
	}
	return found, err
}

// find returns the machine's instance, or nil if there is none.
func (w *Worker) find(ctx context.Context, b containerbroker.Broker, m Machine) (*containerbroker.Instance, error) {
	all, err := b.List(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.Name != m.Instance() {
			continue
		}
		if i.Stamp == nil || i.Stamp.Namespace != w.Namespace || i.Stamp.UID != m.UID {
			return nil, fault.New(fault.Conflict, "another instance is named %q", i.Name)
		}
		return &i, nil
	}
	return nil, nil
}

// retyped returns a stamp's record for a machine of the type t.
func retyped(record string, t spec.ContainerType) (string, error) {
	var stamped, m map[string]json.RawMessage
	err := json.Unmarshal([]byte(record), &stamped)
	if err == nil {
		err = json.Unmarshal(stamped["machine"], &m)
	}
	if err != nil || m == nil {
		return "", fault.New(fault.NeedsOperator, "the stamp of the instance is not readable")
	}
	m["type"] = spec.Encode(t)
	stamped["machine"] = spec.Encode(m)
	return string(spec.Encode(stamped)), nil
}
