package provisioner

import (
	"context"
	"errors"
	"fmt"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// errOvertaken ends a wait because something else is wanted by now.
var errOvertaken = errors.New("something else is wanted by now")

// patience is a wait, within an operation, that need not be waited to its end
// when the machine's declaration changes or goes away: the image is not
// wanted any more, nor need the instance become usable.
type patience struct {
	uid        string
	generation int64
	end        context.CancelCauseFunc
}

// wait returns a context that ends as well when something else is wanted of
// the machine, and what gives it back.
func (o *operation) wait(ctx context.Context) (context.Context, func()) {
	w := o.w
	waitCtx, end := context.WithCancelCause(ctx)
	w.mu.Lock()
	w.waits[o.d.Name] = patience{uid: o.d.UID, generation: o.d.Generation, end: end}
	w.mu.Unlock()
	// The change may have come before it could be told.
	w.overtake(ctx, []state.ID{{Kind: spec.KindMachine, Name: o.d.Name}})
	return waitCtx, func() {
		w.mu.Lock()
		delete(w.waits, o.d.Name)
		w.mu.Unlock()
		end(nil)
	}
}

// stillWanted reads the machine's record again, which an operation does right
// before each effect: waiting for a place, for an image or for the effect
// before takes minutes, and a declaration that changed or went away meanwhile
// is planned for anew. It returns errOvertaken when that is so.
func (o *operation) stillWanted(ctx context.Context) (state.Object, error) {
	if o.d.UID == "" {
		return state.Object{}, nil // an unknown instance, which has no record
	}
	found, err := o.w.Store.Get(ctx, state.ID{Kind: spec.KindMachine, Name: o.d.Name})
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

// overtake ends the waits of those machines of which something else is wanted.
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
