package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/internal/fault"
)

// Patient makes calls that libvirt may answer only after minutes, e.g. because
// it has to find out first what its QEMU can do. Each call has a connection of
// its own, on which it goes on when its caller's limit is over: closing that
// would not end it in libvirt, which has few workers. The zero value is ready.
type Patient struct {
	mu   sync.Mutex
	late map[*late]bool
}

// late is a call that was not answered within its limit and goes on.
type late struct {
	what  string
	since time.Time
}

// longestCall bounds a call whose caller has ceased to wait.
const longestCall = time.Hour

// Patiently makes a call that returns something; what completes the sentence
// "cannot …" and names the kind of call: as long as a call of that kind that
// went past its limit has no answer, no other one is made, and the error says
// so. The limit of connecting is dial.
func Patiently[T any](ctx context.Context, p *Patient, socket string, dial, limit time.Duration, what string, f func(*libvirt.Libvirt) (T, error)) (T, error) {
	var none T
	if since, is := p.isLate(what); is {
		return none, fault.New(fault.Transient, "cannot %s: libvirt has not answered the same request of %s ago yet, so that it is not repeated; "+
			"`systemctl restart libvirtd` ends the wait", what, time.Since(since).Round(time.Second))
	}
	c, err := Dial(context.WithoutCancel(ctx), socket, dial, nil)
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
		defer c.Close()
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
		err = fault.New(fault.Transient, "cannot %s: libvirt gave no answer within %s", what, limit)
	case <-ctx.Done():
		err = fmt.Errorf("cannot %s: %w", what, ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case a := <-done: // it came in time all the same
		return a.value, a.err
	default:
	}
	if p.late == nil {
		p.late = map[*late]bool{}
	}
	p.late[call] = true
	return none, err
}

func (p *Patient) isLate(what string) (since time.Time, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for call := range p.late {
		if call.what == what && (!is || call.since.Before(since)) {
			since, is = call.since, true
		}
	}
	return since, is
}

func (p *Patient) answered(call *late) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.late, call)
}
