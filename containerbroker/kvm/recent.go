package kvm

import (
	"maps"
	"sync"
	"time"
)

// recent holds values by name that this driver read or made within recentTime,
// so that several creates and starts in a row do not read them again. The zero
// value is ready for use.
type recent[T any] struct {
	mu   sync.Mutex
	held map[string]aged[T]
}

type aged[T any] struct {
	value T
	at    time.Time
}

const recentTime = 5 * time.Second

func (a aged[T]) isOld() bool { return time.Since(a.at) > recentTime }

// put remembers a value. at is a time at which the value was certainly not yet
// out of date, e.g. before it was read.
func (r *recent[T]) put(name string, value T, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.held, func(_ string, a aged[T]) bool { return a.isOld() })
	if r.held == nil {
		r.held = map[string]aged[T]{}
	}
	r.held[name] = aged[T]{value, at}
}

// get returns a remembered value, and false if there is none.
func (r *recent[T]) get(name string) (T, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.held[name]
	return a.value, ok && !a.isOld()
}

// take is like get(), but only the first call after a put returns the value.
func (r *recent[T]) take(name string) (T, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.held[name]
	delete(r.held, name)
	return a.value, ok && !a.isOld()
}

// clear forgets all values.
func (r *recent[T]) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.held)
}

// recentPool is like openPool(), but its answer may be up to recentTime old. It
// is for the creation of instances.
func (d *Driver) recentPool(c *conn, name string) (*pool, error) {
	if p, ok := d.pools.get(name); ok {
		p.conn = c
		return &p, nil
	}
	at := time.Now()
	p, err := c.openPool(name)
	if err == nil {
		d.pools.put(name, pool{pool: p.pool, dir: p.dir, shared: p.shared}, at)
	}
	return p, err
}

// imageCapacity returns the size of an image as a guest sees it, in bytes. The
// content of an image of that name never changes.
func (d *Driver) imageCapacity(p *pool, image string) (int64, error) {
	if size, ok := d.capacities.get(p.path(image)); ok {
		return size, nil
	}
	at := time.Now()
	base, err := p.lookup(image)
	if err != nil {
		return 0, err
	}
	size, err := p.capacity(base)
	if err == nil {
		d.capacities.put(p.path(image), size, at)
	}
	return size, err
}
