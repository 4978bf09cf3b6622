package state

import (
	"slices"
	"strings"
	"sync"
)

// memory is a copy of the committed objects and open intents, from which all
// reads are answered: passes read all objects many times a second during an
// apply, and SQLite takes longer for each row than a worker does. Only the
// goroutine that holds Local.turn changes it.
type memory struct {
	mu       sync.RWMutex
	revision int64
	objects  map[string][]*Object // by kind, sorted by name
	intents  []Intent             // oldest first
}

func newMemory() *memory { return &memory{objects: map[string][]*Object{}} }

func search(objects []*Object, name string) (at int, found bool) {
	return slices.BinarySearchFunc(objects, name, func(o *Object, name string) int { return strings.Compare(o.Name, name) })
}

// set makes the revision and the committed changes visible in one step.
func (m *memory) set(revision int64, changes ...change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision = revision
	for _, c := range changes {
		all := m.objects[c.object.Kind]
		at, found := search(all, c.object.Name)
		switch {
		case c.removed && found:
			m.objects[c.object.Kind] = slices.Delete(all, at, at+1)
		case found:
			all[at] = &c.object
		case !c.removed:
			m.objects[c.object.Kind] = slices.Insert(all, at, &c.object)
		}
	}
}

func (m *memory) begin(in Intent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.intents = append(m.intents, in)
}

func (m *memory) end(tokens []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.intents = slices.DeleteFunc(m.intents, func(in Intent) bool { return slices.Contains(tokens, in.Token) })
}

func (m *memory) get(id ID) (Object, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	at, found := search(m.objects[id.Kind], id.Name)
	if !found {
		return Object{}, false
	}
	return *m.objects[id.Kind][at], true
}

// list returns the objects of the kinds, or of all if there are none, ordered
// by kind and name, and the revision.
func (m *memory) list(kinds []string) ([]Object, int64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(kinds) == 0 {
		for kind := range m.objects {
			kinds = append(kinds, kind)
		}
	}
	kinds = slices.Compact(slices.Sorted(slices.Values(kinds)))
	n := 0
	for _, kind := range kinds {
		n += len(m.objects[kind])
	}
	all := make([]Object, 0, n)
	for _, kind := range kinds {
		for _, o := range m.objects[kind] {
			all = append(all, *o)
		}
	}
	return all, m.revision
}

func (m *memory) open() []Intent {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return append([]Intent{}, m.intents...)
}
