package reconcile

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// StatusWrite returns the write of an object's status.
func StatusWrite(id state.ID, uid string, status any) state.Write {
	return state.Write{ID: id, UID: uid, Revision: state.AnyRevision, Status: spec.Encode(status)}
}

// Batch collects independent writes.
type Batch []state.Write

// Status adds the write of an object's status, unless the status is as before.
func (b *Batch) Status(id state.ID, uid string, before, after any) {
	if !SameStatus(before, after) {
		*b = append(*b, StatusWrite(id, uid, after))
	}
}

// SameStatus reports whether two statuses are equal in the store.
func SameStatus(a, b any) bool {
	return reflect.DeepEqual(a, b) || string(spec.Encode(a)) == string(spec.Encode(b))
}

// Remove adds the removal of an object's record.
func (b *Batch) Remove(id state.ID, uid string) {
	*b = append(*b, state.Write{ID: id, UID: uid, Revision: state.AnyRevision, Delete: true})
}

// Write makes independent writes. It ignores objects that were removed or
// replaced meanwhile, because they need no status.
func (f *Frame) Write(ctx context.Context, writes Batch) error {
	if len(writes) == 0 {
		return nil
	}
	for i := range writes {
		f.relax(&writes[i])
	}
	results, err := f.Store.Write(ctx, state.Each, writes...)
	if err != nil {
		return fmt.Errorf("cannot write statuses: %w", err)
	}
	for i, r := range results {
		f.remember(writes[i], r)
		if r.Err != nil && !fault.Is(r.Err, fault.NotFound) && !fault.Is(r.Err, fault.Conflict) {
			return fmt.Errorf("cannot write the status of %s/%s: %w", writes[i].Kind, writes[i].Name, r.Err)
		}
	}
	return nil
}

// Put makes one write and returns its error.
func (f *Frame) Put(ctx context.Context, w state.Write) error {
	f.relax(&w)
	results, err := f.Store.Write(ctx, state.Each, w)
	if err != nil {
		return err
	}
	f.remember(w, results[0])
	return results[0].Err
}

func (f *Frame) relax(w *state.Write) { w.Relaxed = f.Relaxed && !w.Delete }

// Progress makes a relaxed write of a status that shows the progress of an
// operation. It only logs a failure, so that the operation goes on.
func (f *Frame) Progress(ctx context.Context, w state.Write) {
	w.Relaxed = true
	if _, err := f.Store.Write(ctx, state.Each, w); err != nil && ctx.Err() == nil {
		f.Logger.Warn("Progress cannot be written.", "object", w.Kind+"/"+w.Name, "error", err)
	}
}

func (f *Frame) remember(w state.Write, r state.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.wrote, w.ID); !w.Delete && r.Err == nil {
		f.wrote[w.ID] = r.Object.Revision
	}
}

// Own reports whether the object's last change was a status for the current
// generation that Write() or Put() wrote. A status for an earlier generation
// does not count, because it must not hide a change of the declaration.
func (f *Frame) Own(ctx context.Context, id state.ID) bool {
	o, err := f.Store.Get(ctx, id)
	var seen struct {
		Generation int64 `json:"observed-generation"`
	}
	if err != nil || o.Decode(nil, &seen) != nil || seen.Generation < o.Generation {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wrote[id] == o.Revision
}

// Stored reports whether the last write of the object by Write() or Put() was
// made. For a write that came too late, Write() returns no error.
func (f *Frame) Stored(id state.ID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, stored := f.wrote[id]
	return stored
}

// Record records events. An event without a time gets the current time. Events
// are recorded even while the agent stops.
func (f *Frame) Record(ctx context.Context, events ...state.Event) {
	if len(events) == 0 {
		return
	}
	for i := range events {
		if events[i].Time.IsZero() {
			events[i].Time = f.Now()
		}
	}
	ctx, cancel := Outlasting(ctx)
	defer cancel()
	if err := f.Store.Record(ctx, events...); err != nil {
		f.Logger.Warn("Events cannot be recorded.", "object", events[0].Object.Kind+"/"+events[0].Object.Name, "error", err)
	}
}

// Outlasting returns a context that lasts 10 s even if ctx ends. It is for
// recording a known result while the agent stops.
func Outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}
