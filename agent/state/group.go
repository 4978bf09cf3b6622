package state

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	sqlite3 "modernc.org/sqlite/lib"

	"hostler/internal/fault"
)

// Changes that wait for Local.turn are committed together, because a sync of
// the disk costs more than many changes. Each change succeeds or fails on its
// own.

// maxGroup bounds the rows that one commit writes for several changes, so that
// the first change does not wait long for the others.
const maxGroup = 1000

type urgentKey struct{}

// Urgent marks the changes made with ctx as urgent, e.g. those of an API call
// for which a user waits. They are committed before all other waiting changes.
func Urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgentKey{}, true) }

// pending is a change that waits for its commit.
type pending struct {
	ctx     context.Context //nolint:containedctx // of the call that waits for it
	rows    int
	relaxed bool
	// make() runs in a transaction. If the disk is full, it may run again in
	// another transaction. then() runs once after the commit, in the goroutine
	// that holds Local.turn.
	make func(ctx context.Context, m *meta) error
	then func()
	// done is closed when err or panicked is set.
	done     chan struct{}
	err      error
	panicked any
}

func (p *pending) end(err error) {
	p.err = err
	close(p.done)
}

// queue holds the waiting changes in the order of their arrival.
type queue struct {
	mu            sync.Mutex
	urgent, usual []*pending
}

func (q *queue) add(p *pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.ctx.Value(urgentKey{}) != nil {
		q.urgent = append(q.urgent, p)
	} else {
		q.usual = append(q.usual, p)
	}
}

// drop removes a change from the queue. It returns false if the change has
// already been taken for a commit.
func (q *queue) drop(p *pending) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, list := range []*[]*pending{&q.urgent, &q.usual} {
		if i := slices.Index(*list, p); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			return true
		}
	}
	return false
}

// Waiting counts the changes that wait for their commit.
func (l *Local) Waiting() int {
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	return len(l.queue.urgent) + len(l.queue.usual)
}

// take removes and returns the changes of the next commit.
func (q *queue) take() []*pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	var group []*pending
	rows := 0
	for _, list := range []*[]*pending{&q.urgent, &q.usual} {
		n := 0
		for ; n < len(*list) && (len(group) == 0 || rows+(*list)[n].rows <= maxGroup); n++ {
			group = append(group, (*list)[n])
			rows += (*list)[n].rows
		}
		*list = slices.Delete(*list, 0, n)
		if len(*list) > 0 {
			break
		}
	}
	return group
}

// change commits a change, together with other waiting changes. It returns
// ctx's error only if nothing was changed.
func (l *Local) change(p *pending) error {
	ctx := p.ctx
	p.rows, p.done = max(p.rows, 1), make(chan struct{})
	l.queue.add(p)
	select {
	case l.turn <- struct{}{}:
		func() {
			defer l.give()
			for !p.ended() {
				l.commitGroup(l.queue.take())
			}
		}()
	case <-p.done:
	case <-ctx.Done():
		if l.queue.drop(p) {
			return ctx.Err()
		}
		<-p.done
	}
	if p.panicked != nil {
		panic(p.panicked)
	}
	return p.err
}

func (p *pending) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// commitGroup makes the changes in one transaction. The caller holds l.turn.
func (l *Local) commitGroup(group []*pending) {
	err := l.open()
	if err == nil {
		err = l.Health()
	}
	defer func() { // whatever happens, no caller waits for ever
		for _, p := range group {
			if !p.ended() {
				p.end(fault.New(fault.Transient, "cannot write the store: the commit broke off"))
			}
		}
	}()
	var left []*pending
	for _, p := range group {
		switch {
		case err != nil:
			p.end(err)
		case p.ctx.Err() != nil:
			p.end(p.ctx.Err())
		default:
			left = append(left, p)
		}
	}
	if len(left) == 0 {
		return
	}
	refused := make([]error, len(left))
	relaxed := !slices.ContainsFunc(left, func(p *pending) bool { return !p.relaxed })
	err = l.commit(relaxed, func(ctx context.Context, m *meta) error {
		for i, p := range left {
			shared := len(left) > 1
			if refused[i] = l.try(ctx, m, p, shared); refused[i] != nil && (!shared || !isRefusal(refused[i])) {
				return refused[i]
			}
		}
		return nil
	})
	if err != nil && len(left) > 1 && sqliteCode(err) == sqlite3.SQLITE_FULL {
		// There may be room for some of the changes if each is made alone.
		for _, p := range left {
			l.commitGroup([]*pending{p})
		}
		return
	}
	for i, p := range left {
		if err == nil && refused[i] == nil && p.then != nil {
			p.then()
		}
		if err != nil {
			p.end(err)
		} else {
			p.end(refused[i])
		}
	}
}

// try makes one change. If other changes share the transaction, it undoes a
// failed change by rolling back to a savepoint.
func (l *Local) try(ctx context.Context, m *meta, p *pending, shared bool) (err error) {
	before := *m
	if shared {
		if _, err := l.conn.ExecContext(ctx, "SAVEPOINT change"); err != nil {
			return err
		}
	}
	defer func() {
		if v := recover(); v != nil {
			p.panicked = v
			l.log.Error("A change of the store ended in a panic.", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = fault.New(fault.Transient, "cannot write the store: %v", v)
		}
		if !shared {
			return
		}
		undo := ""
		if err != nil {
			*m, undo = before, "ROLLBACK TO change; "
		}
		if _, failed := l.conn.ExecContext(ctx, undo+"RELEASE change"); failed != nil && (err == nil || isRefusal(err)) {
			err = failed
		}
	}()
	return p.make(ctx, m)
}
