package rpc

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Pool keeps connections open for a short time between operations, because each
// new connection costs libvirt two calls and a client's set-up. The zero value
// is ready for use.
type Pool struct {
	mu   sync.Mutex
	idle []*kept
}

// kept is an idle connection. Each Put makes a new one, so the timer of an
// earlier Put does not expire a connection that was used since.
type kept struct{ *Conn }

const (
	// idleTime is the time for which an unused connection is kept. An idle agent
	// thus has no connections.
	idleTime = 5 * time.Second
	// maxIdle bounds the number of kept connections, because libvirt accepts only
	// 120 clients by default.
	maxIdle = 8
)

// Get returns an idle connection or a new one; see Dial. The caller must give
// the connection back with Put.
func (p *Pool) Get(ctx context.Context, socket string, limit time.Duration) (*Conn, error) {
	for {
		k := p.pop()
		if k == nil {
			return Dial(ctx, socket, limit, nil)
		}
		if k.rebind(ctx, limit) {
			return k.Conn, nil
		}
		k.Close()
	}
}

func (p *Pool) pop() *kept {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	k := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return k
}

// Put keeps a connection for the next operation, or closes the connection if it
// is broken or its operation was cancelled.
func (p *Pool) Put(c *Conn) {
	if !c.unbind() {
		c.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) >= maxIdle {
		c.Close()
		return
	}
	k := &kept{c}
	p.idle = append(p.idle, k)
	time.AfterFunc(idleTime, func() { p.expire(k) })
}

// expire closes a connection if it has stayed in the pool since its Put.
func (p *Pool) expire(k *kept) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.idle, k); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		k.Close()
	}
}
