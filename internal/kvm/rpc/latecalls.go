package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/internal/fault"
)

// LateCalls holds the calls that libvirt did not answer in time. libvirt may
// answer only after minutes, e.g. because it first has to probe QEMU's
// capabilities. Each call has its own connection, on which it continues after
// the caller's limit. Closing the connection would not end the call inside
// libvirt, which has few workers. The zero value is ready for use.
type LateCalls struct {
	// Pool provides the connections. Other operations may use it as well.
	Pool Pool

	mu   sync.Mutex
	late map[*late]bool
}

// late is an unanswered call that continues past its limit.
type late struct {
	what  string
	since time.Time
}

// longestCall bounds a call whose caller no longer waits.
const longestCall = time.Hour

// CallUnlessLate makes a call that returns a value. what completes the error
// text "cannot …" and also names the kind of call. While a late call of the
// same kind has no answer, CallUnlessLate makes no further call and returns an
// error that says so. dial is the time limit for connecting.
func CallUnlessLate[T any](ctx context.Context, p *LateCalls, socket string, dial, limit time.Duration, what string, f func(*libvirt.Libvirt) (T, error)) (T, error) {
	var none T
	if since, is := p.isLate(what); is {
		return none, fault.New(fault.Transient, "cannot %s: libvirt has not answered the same request of %s ago yet, so that it is not repeated; "+
			"`systemctl restart libvirtd` ends the wait", what, time.Since(since).Round(time.Second))
	}
	c, err := p.Pool.Get(context.WithoutCancel(ctx), socket, dial)
	if err != nil {
		return none, err
	}
	type answer struct {
		value T
		err   error
	}
	call := &late{what: what, since: time.Now()}
	done := make(chan answer, 1)
	go func() {
		defer p.Pool.Put(c)
		value, err := valueWithin(c, longestCall, what, f)
		done <- answer{value, err}
		p.answered(call)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-done:
		return a.value, a.err
	case <-timer.C:
		err = fault.New(fault.Transient, "cannot %s: %w within %s", what, ErrLate, limit)
	case <-ctx.Done():
		err = fmt.Errorf("cannot %s: %w", what, ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case a := <-done: // the answer arrived in time after all
		return a.value, a.err
	default:
	}
	if p.late == nil {
		p.late = map[*late]bool{}
	}
	p.late[call] = true
	return none, err
}

func (p *LateCalls) isLate(what string) (since time.Time, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for call := range p.late {
		if call.what == what && (!is || call.since.Before(since)) {
			since, is = call.since, true
		}
	}
	return since, is
}

func (p *LateCalls) answered(call *late) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.late, call)
}
