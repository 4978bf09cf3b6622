package provisioner

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// errOvertaken is the error of a wait or an operation that ends because the
// declaration changed.
var errOvertaken = errors.New("its declaration changed meanwhile")

// declarationWait is a wait within an operation, e.g. for an image or for
// readiness. It ends early if the machine's declaration changes or is removed.
type declarationWait struct {
	uid        string
	generation int64
	end        context.CancelCauseFunc
	// machine has the NICs and disks of the instance, in a wait for readiness. Else it is
	// nil.
	machine *containerbroker.Machine
}

// wait returns a context that also ends when the machine's declaration changes, and
// when its NICs or disks are no longer those of machine, unless that is nil. The
// returned function releases the context.
func (o *operation) wait(ctx context.Context, machine *containerbroker.Machine) (context.Context, func()) {
	w := o.w
	waitCtx, end := context.WithCancelCause(ctx)
	w.mu.Lock()
	w.waits[o.d.Name] = declarationWait{uid: o.d.UID, generation: o.d.Generation, end: end, machine: machine}
	w.mu.Unlock()
	// Check now, because the declaration may have changed before w.waits had
	// the entry.
	w.overtake(ctx, []state.ID{o.d.id()})
	return waitCtx, func() {
		w.mu.Lock()
		delete(w.waits, o.d.Name)
		w.mu.Unlock()
		end(nil)
	}
}

// stillWanted reads the machine's record again and returns errOvertaken if the
// declaration changed or was removed. Operations call it right before each
// effect, since a wait for a slot or an image can take minutes.
func (o *operation) stillWanted(ctx context.Context) (state.Object, error) {
	if o.d.UID == "" {
		return state.Object{}, nil // an orphan has no record
	}
	found, err := o.w.Store.Get(ctx, o.d.id())
	switch {
	case fault.Is(err, fault.NotFound):
		return state.Object{}, errOvertaken
	case err != nil:
		return state.Object{}, fmt.Errorf("cannot read the machine's record again: %w", err)
	case found.UID != o.d.UID || found.Generation != o.d.Generation:
		return state.Object{}, errOvertaken
	}
	return found, nil
}

func overtaken(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errOvertaken) }

// overtake ends the waits of the machines whose declaration changed.
func (w *Worker) overtake(ctx context.Context, changed []state.ID) {
	for _, id := range changed {
		w.mu.Lock()
		p, waits := w.waits[id.Name]
		w.mu.Unlock()
		if id.Kind != spec.KindMachine || !waits {
			continue
		}
		o, err := w.Store.Get(ctx, id)
		if fault.Is(err, fault.NotFound) || err == nil && (o.UID != p.uid || o.Generation != p.generation) {
			p.end(errOvertaken)
		}
	}
}

// overtakeReplugged ends the waits for the readiness of instances that are to get other
// NICs or disks, e.g. because their network has another bridge. Without these an instance
// may never be ready.
func (w *Worker) overtakeReplugged(desired []Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range desired {
		p, waits := w.waits[d.Name]
		if waits && p.machine != nil && p.uid == d.UID && len(d.Waiting) == 0 &&
			(!reflect.DeepEqual(p.machine.NICs, d.Machine.NICs) || !slices.Equal(p.machine.Disks, d.Machine.Disks)) {
			p.end(errOvertaken)
		}
	}
}
