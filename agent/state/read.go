package state

import (
	"cmp"
	"context"
	"slices"

	"hostler/internal/fault"
)

// Get returns one object.
func (l *Local) Get(_ context.Context, id ID) (Object, error) {
	if err := l.open(); err != nil {
		return Object{}, err
	}
	o, found := l.memory.get(id)
	if !found {
		return Object{}, fault.New(fault.NotFound, "cannot find %s/%s", id.Kind, id.Name)
	}
	return o, nil
}

// List returns the objects of the kinds as of a single revision.
func (l *Local) List(ctx context.Context, kinds ...string) ([]Object, int64, error) {
	if err := cmp.Or(l.open(), ctx.Err()); err != nil {
		return nil, 0, err
	}
	objects, revision := l.memory.list(kinds)
	return objects, revision, nil
}

// Watch first sends the ids of all objects of the kinds, then the ids of
// changed objects.
func (l *Local) Watch(ctx context.Context, kinds ...string) (<-chan []ID, error) {
	w, err := l.hub.register(kinds)
	if err != nil {
		return nil, err
	}
	objects, _, err := l.List(ctx, kinds...)
	if err != nil {
		l.hub.unregister(w)
		return nil, err
	}
	first := make([]ID, len(objects))
	for i, o := range objects {
		first[i] = o.ID
	}
	ch, err := l.hub.run(ctx, w, first)
	if err != nil {
		l.hub.unregister(w)
	}
	return ch, err
}

// Intents returns the open intents, oldest first.
func (l *Local) Intents(ctx context.Context) ([]Intent, error) {
	if err := cmp.Or(l.open(), ctx.Err()); err != nil {
		return nil, err
	}
	return l.memory.open(), nil
}

// defaultEvents is the limit for a query whose Limit is 0.
const defaultEvents = 1000

// Events returns the events that the query selects, oldest first.
func (l *Local) Events(ctx context.Context, q EventQuery) ([]Event, error) {
	if err := l.open(); err != nil {
		return nil, err
	}
	query, args := "SELECT "+eventColumns+" FROM events WHERE seq > ?", []any{q.After}
	if q.Before > 0 {
		query, args = query+" AND seq < ?", append(args, q.Before)
	}
	if q.Object != nil {
		query, args = query+" AND kind = ?", append(args, q.Object.Kind)
		if q.Object.Name != "" {
			query, args = query+" AND name = ?", append(args, q.Object.Name)
		}
	}
	limit := q.Limit
	if limit <= 0 {
		limit = defaultEvents
	}
	order := " ORDER BY seq"
	if q.Newest {
		order += " DESC"
	}
	rows, err := l.events.QueryContext(ctx, query+order+" LIMIT ?", append(args, limit)...)
	events, err := collect(rows, err, scanEvent)
	if q.Newest {
		slices.Reverse(events)
	}
	return events, l.readError(ctx, err)
}

// WatchEvents signals that there are new events. The first signal comes at
// once.
func (l *Local) WatchEvents(ctx context.Context) (<-chan struct{}, error) {
	return l.hub.runEvents(ctx)
}

// readError returns an error of a read with a fault kind and a text. If the
// error means damage, the store becomes read-only.
func (l *Local) readError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return l.fail("read", err)
}
