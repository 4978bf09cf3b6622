package brokertest

import (
	"context"
	"sync"
)

// fault is an injected failure.
type fault struct {
	method Method
	name   string // instance or image reference; "" matches all
	times  int    // remaining calls; negative if every call fails
	err    error
	after  bool // fail after the work, as if the reply were lost
	gate   chan struct{}
}

// Fail makes the next calls of a method, as many as times says, fail with err
// before they do any work. If times is negative, all calls fail until Heal().
// Only calls for the instance or image reference name fail; "" matches every
// call.
func (f *Fake) Fail(m Method, name string, times int, err error) {
	f.inject(&fault{method: m, name: name, times: times, err: err})
}

// LoseReplies is like Fail, but the calls do their work and then return err.
func (f *Fake) LoseReplies(m Method, name string, times int, err error) {
	f.inject(&fault{method: m, name: name, times: times, err: err, after: true})
}

// Block makes every call of a method wait before its work, until release is
// called or the call's context ends. release may be called more than once.
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

// Heal removes every injected fault and makes List show hidden instances again.
// Calls that Block has stopped wait on until release is called.
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

// work counts a call, applies its faults and calls do. do gets the instance of
// that name, or nil if there is none. If the reply is to be lost, work returns
// an error although do succeeded.
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

// enter counts a call and applies its faults. If err is set, the caller must
// return it without doing any work. If lost is set, the caller must return it
// after the work.
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
