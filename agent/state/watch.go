package state

import (
	"context"
	"slices"
	"sync"
)

// hub passes changed ids and the signal for new events to the watchers. It
// never waits for a watcher.
type hub struct {
	mu     sync.Mutex
	ids    map[*idWatch]struct{}
	events map[chan struct{}]struct{}
	done   chan struct{}
	closed bool
	wait   sync.WaitGroup
}

// idWatch gathers the ids that one watcher has not received yet.
type idWatch struct {
	kinds   []string // empty means all
	pending batch
	wake    chan struct{} // holds one signal
}

// batch keeps each id once, in the order of first arrival.
type batch struct {
	order []ID
	has   map[ID]bool
}

func (b *batch) add(ids ...ID) {
	if b.has == nil {
		b.has = map[ID]bool{}
	}
	for _, id := range ids {
		if !b.has[id] {
			b.has[id] = true
			b.order = append(b.order, id)
		}
	}
}

func newHub() *hub {
	return &hub{ids: map[*idWatch]struct{}{}, events: map[chan struct{}]struct{}{}, done: make(chan struct{})}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changed notifies the watchers of the changed objects' kinds.
func (h *hub) changed(changes []change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.ids {
		n := len(w.pending.order)
		for _, c := range changes {
			if id := c.object.ID; len(w.kinds) == 0 || slices.Contains(w.kinds, id.Kind) {
				w.pending.add(id)
			}
		}
		if len(w.pending.order) > n {
			signal(w.wake)
		}
	}
}

// recorded notifies the watchers of events.
func (h *hub) recorded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.events {
		signal(c)
	}
}

// register begins to gather ids, and run() delivers them. The watcher lists the
// existing objects between the two calls, so that no change is missed.
func (h *hub) register(kinds []string) (*idWatch, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errClosed()
	}
	w := &idWatch{kinds: slices.Clone(kinds), wake: make(chan struct{}, 1)}
	h.ids[w] = struct{}{}
	return w, nil
}

func (h *hub) unregister(w *idWatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ids, w)
}

func (h *hub) take(w *idWatch) []ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := w.pending.order
	w.pending = batch{}
	return ids
}

// run sends the ids in first, and then the changed ids, until ctx ends or the
// hub is closed. While the reader is slow, the next batch grows.
func (h *hub) run(ctx context.Context, w *idWatch, first []ID) (<-chan []ID, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errClosed()
	}
	ch := make(chan []ID)
	h.wait.Go(func() {
		defer close(ch)
		defer h.unregister(w)
		var offer batch
		offer.add(first...)
		if offer.order == nil {
			offer.order = []ID{}
		}
		for {
			var out chan []ID
			if offer.order != nil {
				out = ch
			}
			select {
			case out <- offer.order:
				offer = batch{}
			case <-w.wake:
				offer.add(h.take(w)...)
			case <-ctx.Done():
				return
			case <-h.done:
				return
			}
		}
	})
	return ch, nil
}

// runEvents works like run(), but for the signal of new events. The first
// signal comes at once, so that earlier events are not missed.
func (h *hub) runEvents(ctx context.Context) (<-chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errClosed()
	}
	wake, ch := make(chan struct{}, 1), make(chan struct{})
	signal(wake)
	h.events[wake] = struct{}{}
	h.wait.Go(func() {
		defer close(ch)
		defer func() { h.mu.Lock(); delete(h.events, wake); h.mu.Unlock() }()
		var out chan struct{}
		for {
			select {
			case <-wake:
				out = ch
			case out <- struct{}{}:
				out = nil
			case <-ctx.Done():
				return
			case <-h.done:
				return
			}
		}
	})
	return ch, nil
}

// close ends all watches and waits for their goroutines.
func (h *hub) close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.done)
	}
	h.mu.Unlock()
	h.wait.Wait()
}
