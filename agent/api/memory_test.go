package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler/agent/state"
	"hostler/internal/fault"
)

// memory is a store in memory: the same rules, but not durable.
type memory struct {
	mu         sync.Mutex
	rev        int64
	objects    map[state.ID]state.Object
	events     []state.Event
	eventsRead int
	watchers   map[chan struct{}]bool
	// fail is the error of every call while it is set.
	fail error
	// writes counts the calls that changed objects, lists the listings.
	writes, lists int
}

func newMemory() *memory {
	return &memory{objects: map[state.ID]state.Object{}, watchers: map[chan struct{}]bool{}}
}

func (m *memory) Get(_ context.Context, id state.ID) (state.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return state.Object{}, m.fail
	}
	o, ok := m.objects[id]
	if !ok {
		return o, fault.New(fault.NotFound, "%s/%s is not there", id.Kind, id.Name)
	}
	return o, nil
}

func (m *memory) List(_ context.Context, kinds ...string) ([]state.Object, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, 0, m.fail
	}
	m.lists++
	var all []state.Object
	for id, o := range m.objects {
		if len(kinds) == 0 || slices.Contains(kinds, id.Kind) {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b state.Object) int {
		return strings.Compare(a.Kind+"/"+a.Name, b.Kind+"/"+b.Name)
	})
	return all, m.rev, nil
}

func (m *memory) Write(_ context.Context, mode state.Mode, writes ...state.Write) ([]state.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	before, rev := maps.Clone(m.objects), m.rev
	var results []state.Result
	for _, w := range writes {
		o, err := m.one(w)
		if err != nil && mode == state.Atomic {
			m.objects, m.rev = before, rev
			return nil, err
		}
		results = append(results, state.Result{Object: o, Err: err})
	}
	if m.rev != rev {
		m.writes++
		m.wake()
	}
	return results, nil
}

func (m *memory) one(w state.Write) (state.Object, error) {
	o, there := m.objects[w.ID]
	name := w.Kind + "/" + w.Name
	switch {
	case w.Revision == 0 && there:
		return o, fault.New(fault.Conflict, "%s is there already", name)
	case w.Revision != 0 && !there:
		return o, fault.New(fault.NotFound, "%s is not there", name)
	case w.Revision > 0 && w.Revision != o.Revision:
		return o, fault.New(fault.Conflict, "%s was changed meanwhile", name)
	case there && w.UID != "" && w.UID != o.UID:
		return o, fault.New(fault.Conflict, "%s is another one", name)
	}
	if w.Delete {
		m.rev++
		delete(m.objects, w.ID)
		return o, nil
	}
	next := o
	if !there {
		next = state.Object{ID: w.ID, UID: w.UID, Life: state.Alive, Created: time.Unix(m.rev, 0).UTC()}
		if next.UID == "" {
			next.UID = fmt.Sprintf("uid-%d", m.rev+1)
		}
	}
	generation := !there
	if w.Spec != nil && !bytes.Equal(w.Spec, o.Spec) {
		next.Spec, generation = w.Spec, true
	}
	if w.Life != "" && w.Life != next.Life {
		next.Life, generation = w.Life, true
	}
	changed := generation
	if w.Status != nil && !bytes.Equal(w.Status, o.Status) {
		next.Status, changed = w.Status, true
	}
	if !changed {
		return o, nil
	}
	if generation {
		next.Generation++
	}
	m.rev++
	next.Revision, next.Updated = m.rev, time.Unix(m.rev, 0).UTC()
	m.objects[w.ID] = next
	return next, nil
}

func (m *memory) wake() {
	for c := range m.watchers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// watch registers a signal until ctx ends or the watch is cut.
func (m *memory) watch(ctx context.Context) chan struct{} {
	c := make(chan struct{}, 1)
	m.mu.Lock()
	m.watchers[c] = true
	m.mu.Unlock()
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.watchers[c] {
			delete(m.watchers, c)
			close(c)
		}
	})
	return c
}

// cutWatches ends all watches as lost.
func (m *memory) cutWatches() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.watchers {
		delete(m.watchers, c)
		close(c)
	}
}

func (m *memory) Watch(ctx context.Context, _ ...string) (<-chan []state.ID, error) {
	c := m.watch(ctx)
	ids := make(chan []state.ID)
	go func() {
		defer close(ids)
		for range c {
			select {
			case ids <- nil:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ids, nil
}

func (m *memory) Begin(context.Context, state.Intent) error                { return nil }
func (m *memory) End(context.Context, ...string) error                     { return nil }
func (m *memory) Sync(context.Context) error                               { return nil }
func (m *memory) Intents(context.Context) ([]state.Intent, error)          { return nil, nil }
func (m *memory) WatchEvents(ctx context.Context) (<-chan struct{}, error) { return m.watch(ctx), nil }

func (m *memory) Record(_ context.Context, events ...state.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range events {
		e.Seq = int64(len(m.events) + 1)
		m.events = append(m.events, e)
	}
	m.wake()
	return nil
}

func (m *memory) Events(_ context.Context, q state.EventQuery) ([]state.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	var found []state.Event
	for _, e := range m.events {
		of := q.Object == nil || e.Object.Kind == q.Object.Kind && (q.Object.Name == "" || e.Object.Name == q.Object.Name)
		if e.Seq > q.After && (q.Before == 0 || e.Seq < q.Before) && of {
			found = append(found, e)
		}
	}
	if q.Newest {
		found = found[max(0, len(found)-q.Limit):]
	}
	found = slices.Clone(found[:min(len(found), q.Limit)])
	m.eventsRead += len(found)
	return found, nil
}

// put writes an object, whatever its former state.
func (m *memory) put(id state.ID, life state.Life, spec, status any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rev++
	o := m.objects[id]
	if o.UID == "" {
		o = state.Object{ID: id, UID: fmt.Sprintf("uid-%d", m.rev)}
	}
	o.Revision, o.Life = m.rev, life
	o.Generation++
	o.Spec, _ = json.Marshal(spec)
	if status != nil {
		o.Status, _ = json.Marshal(status)
	}
	m.objects[id] = o
	m.wake()
}

// names lists the objects of a kind.
func (m *memory) names(kind string) []string {
	all, _, _ := m.List(context.Background(), kind)
	names := []string{}
	for _, o := range all {
		names = append(names, o.Name)
	}
	return names
}

func (m *memory) changes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}
