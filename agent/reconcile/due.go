package reconcile

import (
	"container/heap"
	"time"
)

// Heap holds a due time per key. The zero value is empty and ready to use. It
// is not safe for concurrent use.
type Heap[K comparable] struct {
	queue dueQueue[K]
	at    map[K]*due[K]
}

type due[K comparable] struct {
	key   K
	at    time.Time
	seq   uint64 // order of Set calls, for equal times
	index int
}

// Set sets or replaces the due time of the key.
func (h *Heap[K]) Set(key K, at time.Time) {
	if h.at == nil {
		h.at = map[K]*due[K]{}
	}
	h.queue.seq++
	if d := h.at[key]; d != nil {
		d.at, d.seq = at, h.queue.seq
		heap.Fix(&h.queue, d.index)
		return
	}
	d := &due[K]{key: key, at: at, seq: h.queue.seq}
	h.at[key] = d
	heap.Push(&h.queue, d)
}

// Remove deletes the key; an absent key is success.
func (h *Heap[K]) Remove(key K) {
	if d := h.at[key]; d != nil {
		heap.Remove(&h.queue, d.index)
		delete(h.at, key)
	}
}

// Next returns the key that is due first; ok is false if the heap is empty.
func (h *Heap[K]) Next() (key K, at time.Time, ok bool) {
	if len(h.queue.items) == 0 {
		return key, at, false
	}
	d := h.queue.items[0]
	return d.key, d.at, true
}

// Due removes and returns all keys due at now, the earliest first, so that the
// caller handles them together.
func (h *Heap[K]) Due(now time.Time) []K {
	var keys []K
	for {
		key, at, ok := h.Next()
		if !ok || at.After(now) {
			return keys
		}
		h.Remove(key)
		keys = append(keys, key)
	}
}

// Len returns the number of keys.
func (h *Heap[K]) Len() int { return len(h.queue.items) }

// dueQueue implements heap.Interface.
type dueQueue[K comparable] struct {
	items []*due[K]
	seq   uint64
}

func (q *dueQueue[K]) Len() int { return len(q.items) }

func (q *dueQueue[K]) Less(i, j int) bool {
	a, b := q.items[i], q.items[j]
	if a.at.Equal(b.at) {
		return a.seq < b.seq
	}
	return a.at.Before(b.at)
}

func (q *dueQueue[K]) Swap(i, j int) {
	q.items[i], q.items[j] = q.items[j], q.items[i]
	q.items[i].index, q.items[j].index = i, j
}

func (q *dueQueue[K]) Push(x any) {
	d, _ := x.(*due[K])
	d.index = len(q.items)
	q.items = append(q.items, d)
}

func (q *dueQueue[K]) Pop() any {
	last := len(q.items) - 1
	d := q.items[last]
	q.items[last] = nil
	q.items = q.items[:last]
	return d
}
