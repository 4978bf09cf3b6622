package brokertest

import (
	"context"
	"sync"
)

// fault is an injected failure.
type fault struct {
	method Method
	name   string // instance or image reference; "" matches all
	times  int    // remaining calls; negative: always
	err    error
	after  bool // fail after the work, as if the reply were lost
	gate   chan struct{}
}

// Fail makes the next times calls of a method fail with err before they do any
// work; if times is negative, all calls until Heal. name limits it to one
// instance or image reference; "" matches every call.
func (f *Fake) Fail(m Method, name string, times int, err error) {
	f.inject(&fault{method: m, name: name, times: times, err: err})
}

// LoseReplies makes the next times calls do their work and then return err.
func (f *Fake) LoseReplies(m Method, name string, times int, err error) {
	f.inject(&fault{method: m, name: name, times: times, err: err, after: true})
}

// Block holds every call of a method before its work, until release is called
// (any number of times) or the call's context ends.
func (f *Fake) Block(m Method, name string) (release func()) {
	b := &fault{method: m, name: name, times: -1, gate: make(chan struct{})}
	f.inject(b)
	var once sync.Once
	return func() {
		once.Do(func() {
			f.mu.Lock()
			b.times = 0
			f.mu.Unlock()
			close(b.gate)
		})
	}
}

// Hide omits instances from List, as a hypervisor with a wrong listing would.
func (f *Fake) Hide(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		f.hidden[name] = true
	}
}

// Heal removes every injected fault and shows hidden instances; blocked calls
// stay blocked until released.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
	clear(f.hidden)
}

func (f *Fake) inject(x *fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, x)
}

// work counts a call, applies its faults, and does its work with the instance,
// or nil. The error of a lost reply comes after the work.
func (f *Fake) work(ctx context.Context, m Method, name string, do func(*fakeInstance) error) error {
	lost, err := f.enter(ctx, m, name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := do(f.instances[name]); err != nil {
		return err
	}
	return lost
}

// enter counts a call and applies its faults. err is the error to return before
// the work, lost the error to return after it.
func (f *Fake) enter(ctx context.Context, m Method, name string) (lost, err error) {
	f.mu.Lock()
	f.calls[m]++
	var gates []chan struct{}
	for _, x := range f.faults {
		if x.method != m || x.times == 0 || (x.name != "" && x.name != name) {
			continue
		}
		if x.gate != nil {
			gates = append(gates, x.gate)
			continue
		}
		if x.after && lost != nil || !x.after && err != nil {
			continue
		}
		if x.times > 0 {
			x.times--
		}
		if x.after {
			lost = x.err
		} else {
			err = x.err
		}
	}
	f.mu.Unlock()
	for _, gate := range gates {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	return lost, ctx.Err()
}
