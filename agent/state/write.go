package state

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// Write makes all changes in one transaction.
func (l *Local) Write(ctx context.Context, mode Mode, writes ...Write) ([]Result, error) {
	if mode != Atomic && mode != Each {
		return nil, fault.New(fault.Invalid, "cannot write: %q is not a mode", mode)
	}
	var results []Result
	var changes []change
	relaxed := !slices.ContainsFunc(writes, func(w Write) bool { return !w.Relaxed })
	err := l.change(&pending{ctx: ctx, rows: len(writes), relaxed: relaxed, make: func(ctx context.Context, m *meta) error {
		results, changes = make([]Result, len(writes)), nil
		status := false
		for i, w := range writes {
			c, err := l.apply(ctx, m, w)
			if err != nil {
				// An error without a kind is a failure of the store, not of the write.
				if mode == Atomic || !isRefusal(err) {
					return err
				}
				results[i].Err = err
				continue
			}
			results[i].Object = c.object
			if !c.none {
				changes = append(changes, c)
			}
			status = status || w.Status != nil
		}
		if status {
			return failpoint.Hit(failpoint.StoreEffectNoResult)
		}
		return nil
	}, then: func() {
		if len(changes) > 0 {
			l.memory.set(changes[len(changes)-1].object.Revision, changes...)
			l.hub.changed(changes)
			l.written()
		}
	}})
	if err != nil {
		return nil, err
	}
	if err := failpoint.Hit(failpoint.StoreResultNoAck); err != nil {
		return nil, err
	}
	return results, nil
}

func isRefusal(err error) bool {
	return fault.Is(err, fault.KindOf(err))
}

// apply makes one write inside the transaction. Every changed object gets its
// own revision.
func (l *Local) apply(ctx context.Context, m *meta, w Write) (change, error) {
	var cur *Object
	o, err := scanObject(l.stmts.get.QueryRowContext(ctx, w.Kind, w.Name))
	switch {
	case err == nil:
		cur = &o
	case !errors.Is(err, sql.ErrNoRows):
		return change{}, err
	}
	c, err := decide(cur, w, l.clock().UTC(), newUID)
	if err != nil || c.none {
		return c, err
	}
	m.revision++
	c.object.Revision = m.revision
	if cur != nil {
		m.sum ^= cur.checksum()
	}
	if c.removed {
		_, err := l.stmts.remove.ExecContext(ctx, w.Kind, w.Name)
		return c, err
	}
	n := &c.object
	chk := n.checksum()
	m.sum ^= chk
	_, err = l.stmts.put.ExecContext(ctx, n.Kind, n.Name, n.UID, n.Revision, n.Generation, string(n.Life),
		[]byte(n.Spec), []byte(n.Status), n.Created.UnixNano(), n.Updated.UnixNano(), chk)
	return c, err
}

// Begin makes an intent durable.
func (l *Local) Begin(ctx context.Context, in Intent) error {
	if err := checkID(in.Object); err != nil {
		return err
	}
	if err := checkWord(in.Token); err != nil {
		return err
	}
	if in.Began.IsZero() {
		in.Began = l.clock()
	}
	in.Began = in.Began.UTC() // without the monotonic clock, as on the disk
	in.Action, in.UID, in.Owner = printable(in.Action), printable(in.UID), printable(in.Owner)
	if err := failpoint.Hit(failpoint.StoreBeforeIntent); err != nil {
		return err
	}
	err := l.change(&pending{ctx: ctx, make: func(ctx context.Context, m *meta) error {
		_, err := scanIntent(l.stmts.intent.QueryRowContext(ctx, in.Token))
		if err == nil {
			return fault.New(fault.Conflict, "cannot begin to %s %s/%s: the token is in use", in.Action, in.Object.Kind, in.Object.Name)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		chk := in.checksum()
		m.sum ^= chk
		_, err = l.stmts.begin.ExecContext(ctx, in.Token, in.Object.Kind, in.Object.Name, in.UID, in.Action, in.Began.UnixNano(), in.Owner, chk)
		return err
	}, then: func() {
		l.memory.begin(in)
		l.written()
	}})
	if err != nil {
		return err
	}
	return failpoint.Hit(failpoint.StoreAfterIntent)
}

// End removes intents. An absent intent is no error.
func (l *Local) End(ctx context.Context, tokens ...string) error {
	if len(tokens) == 0 {
		return nil
	}
	return l.change(&pending{ctx: ctx, rows: len(tokens), relaxed: true, make: func(ctx context.Context, m *meta) error {
		for _, token := range tokens {
			in, err := scanIntent(l.stmts.intent.QueryRowContext(ctx, token))
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			m.sum ^= in.checksum()
			if _, err := l.stmts.end.ExecContext(ctx, token); err != nil {
				return err
			}
		}
		return nil
	}, then: func() {
		l.memory.end(tokens)
		l.written()
	}})
}

// Sync makes all earlier changes durable.
func (l *Local) Sync(ctx context.Context) error {
	return l.change(&pending{ctx: ctx, make: func(context.Context, *meta) error { return nil }})
}

// Record appends events. An event without a time gets the current time; an
// event without a level gets LevelInfo.
func (l *Local) Record(ctx context.Context, events ...Event) error {
	if len(events) == 0 {
		return nil
	}
	return l.change(&pending{ctx: ctx, rows: len(events), relaxed: true, make: func(ctx context.Context, _ *meta) error {
		for _, e := range events {
			if e.Time.IsZero() {
				e.Time = l.clock()
			}
			e.Level = cmp.Or(e.Level, LevelInfo)
			var next any
			if e.NextRetry != nil {
				next = e.NextRetry.UnixNano()
			}
			if _, err := l.stmts.record.ExecContext(ctx, e.Time.UnixNano(), printable(e.Object.Kind), printable(e.Object.Name),
				printable(e.UID), printable(e.Level), printable(e.Reason), printable(e.Message), e.Attempt, e.Limit, next); err != nil {
				return err
			}
		}
		if _, err := l.stmts.prune.ExecContext(ctx, l.maxEvents); err != nil {
			return err
		}
		return failpoint.Hit(failpoint.StoreEventAppend)
	}, then: l.hub.recorded})
}
