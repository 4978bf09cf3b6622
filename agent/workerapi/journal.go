package workerapi

import (
	"context"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// maxIntents bounds the open intents about one machine. Each create that a
// killed agent left has one. maxAction bounds an intent's action, in bytes.
const (
	maxIntents = 1100 // more than a create can be retried
	maxAction  = 32
)

// Begin writes an intent for a machine of this type and sets its owner.
func (v *restricted) Begin(ctx context.Context, in state.Intent) error {
	if in.Object.Kind != spec.KindMachine {
		return fault.New(fault.Forbidden, "you may not write intents for %s/%s", fault.Clip(in.Object.Kind, 64), fault.Clip(in.Object.Name, 256))
	}
	o, err := v.Get(ctx, in.Object)
	if err != nil {
		return err
	}
	if in.UID != "" && in.UID != o.UID {
		return fault.New(fault.Conflict, "cannot begin to %s machine/%s: its uid is %s", fault.Clip(in.Action, 32), o.Name, o.UID)
	}
	if len(in.Action) > maxAction {
		return fault.New(fault.Invalid, "cannot write an intent for machine/%s: its action is longer than %d bytes", o.Name, maxAction)
	}
	open, err := v.b.Intents(ctx)
	if err != nil {
		return err
	}
	count := 0
	for _, other := range open {
		if other.Object == in.Object {
			count++
		}
	}
	if count >= maxIntents {
		return fault.New(fault.Transient, "cannot write an intent for machine/%s: it has %d open intents", o.Name, count)
	}
	in.Owner = string(v.t)
	return v.b.Begin(ctx, in)
}

// End removes the type's own intents. It ignores tokens of other types'
// intents.
func (v *restricted) End(ctx context.Context, tokens ...string) error {
	own, err := v.Intents(ctx)
	if err != nil {
		return err
	}
	owned := []string{}
	for _, in := range own {
		if slices.Contains(tokens, in.Token) {
			owned = append(owned, in.Token)
		}
	}
	return v.b.End(ctx, owned...)
}

// Intents returns the type's own intents. An intent without an owner belongs to
// the type of its machine, or to every type if the machine no longer exists.
func (v *restricted) Intents(ctx context.Context) ([]state.Intent, error) {
	all, err := v.b.Intents(ctx)
	if err != nil {
		return nil, err
	}
	own := []state.Intent{}
	for _, in := range all {
		switch in.Owner {
		case string(v.t):
			own = append(own, in)
		case "":
			ok, err := v.ownOrGone(ctx, in.Object)
			if err != nil {
				return nil, err
			}
			if ok {
				own = append(own, in)
			}
		}
	}
	return own, nil
}

// ownOrGone reports whether an id names a machine of this type or a machine
// that no longer exists.
func (v *restricted) ownOrGone(ctx context.Context, id state.ID) (bool, error) {
	o, err := v.b.Get(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return id.Kind == spec.KindMachine, nil
	}
	return err == nil && v.own(o), err
}

// Sync makes all earlier changes of any worker durable.
func (v *restricted) Sync(ctx context.Context) error { return v.b.Sync(ctx) }

// maxEvent bounds the text of an event, in bytes.
const maxEvent = 8 << 10

// mayRecord returns nil if the worker has permission to record an event. The
// event's object must exist, be visible to the worker and not be the host.
func (v *restricted) mayRecord(ctx context.Context, e state.Event) error {
	if err := checkKinds(e.Object.Kind); err != nil {
		return err
	}
	if e.Object.Kind == spec.KindHost {
		return notFound(e.Object)
	}
	if _, err := v.Get(ctx, e.Object); err != nil {
		return err
	}
	if len(e.Message) > maxEvent || len(e.Reason) > 128 || len(e.Object.Name) > 256 || len(e.UID) > 256 {
		return fault.New(fault.Invalid, "cannot record the event: it is longer than %d bytes", maxEvent)
	}
	switch e.Level {
	case "", state.LevelInfo, state.LevelWarn, state.LevelError:
		return nil
	}
	return fault.New(fault.Invalid, "cannot record the event: %q is no level", fault.Clip(e.Level, 16))
}

// Record refuses all events if mayRecord() refuses one of them.
func (v *restricted) Record(ctx context.Context, events ...state.Event) error {
	for _, e := range events {
		if err := v.mayRecord(ctx, e); err != nil {
			return err
		}
	}
	return v.b.Record(ctx, events...)
}

// Events returns the events of existing objects that the worker has permission
// to see.
func (v *restricted) Events(ctx context.Context, q state.EventQuery) ([]state.Event, error) {
	if q.Object != nil {
		if err := checkKinds(q.Object.Kind); err != nil {
			return nil, err
		}
	}
	objects, _, err := v.List(ctx)
	if err != nil {
		return nil, err
	}
	own := map[state.ID]bool{}
	for _, o := range objects {
		own[o.ID] = true
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 1000
	}
	q.Limit = 1000
	out := []state.Event{}
	for {
		page, err := v.b.Events(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			if own[e.Object] && len(out) < limit {
				out = append(out, e)
			}
			q.After = e.Seq
		}
		if len(page) < q.Limit || len(out) == limit {
			return out, nil
		}
	}
}

func (v *restricted) WatchEvents(ctx context.Context) (<-chan struct{}, error) {
	return v.b.WatchEvents(ctx)
}
