package reconcile

import (
	"container/heap"
	"time"
)

// Heap holds one due time per key. The zero value is empty and ready; it is
// for one goroutine.
type Heap[K comparable] struct {
	queue dueQueue[K]
	at    map[K]*due[K]
}

type due[K comparable] struct {
	key   K
	at    time.Time
	seq   uint64 // the order of Set, between equal times
	index int
}

// Set makes the key due at a time, in the place of any time it had before.
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

// Remove forgets the key; an absent one is success.
func (h *Heap[K]) Remove(key K) {
	if d := h.at[key]; d != nil {
		heap.Remove(&h.queue, d.index)
		delete(h.at, key)
	}
}

// Next returns what is due first; ok is false when there is nothing.
func (h *Heap[K]) Next() (key K, at time.Time, ok bool) {
	if len(h.queue.items) == 0 {
		return key, at, false
	}
	d := h.queue.items[0]
	return d.key, d.at, true
}

// Due removes and returns every key that is due at now, the earliest first:
// what is due together is done together.
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

// Len is how many keys have a due time.
func (h *Heap[K]) Len() int { return len(h.queue.items) }

// dueQueue is ordered for package heap.
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
