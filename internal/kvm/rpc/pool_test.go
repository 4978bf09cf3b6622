package rpc

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
)

// A pool gives a connection to one operation after the other. It keeps neither
// broken connections nor those of cancelled operations.
func TestPoolReusesGoodConnections(t *testing.T) {
	s := newSlowLibvirt(t)
	var p Pool
	get := func(ctx context.Context) *Conn {
		t.Helper()
		c, err := p.Get(ctx, s.socket, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, second := get(t.Context()), get(t.Context())
	if first == second {
		t.Fatal("two operations share a connection")
	}
	p.Put(first)
	ctx, cancel := context.WithCancel(t.Context())
	again := get(ctx)
	if again != first {
		t.Error("an idle connection is not used again")
	}
	cancel() // ends the operation, and the connection with it
	<-again.Gone
	p.Put(again)
	second.Close()
	p.Put(second)
	third := get(t.Context())
	if third == first || third == second {
		t.Error("a broken connection is used again")
	}
	p.Put(third)
	earlier := p.idle[0]
	if c := get(t.Context()); c != third {
		t.Error("a good connection is not kept")
	}
	p.expire(earlier) // while the connection is in use
	p.Put(third)
	p.expire(earlier)
	if c := get(t.Context()); c != third {
		t.Error("a connection expired before its time")
	}
	p.Put(third)
	p.expire(p.idle[0])
	select {
	case <-third.Gone:
	default:
		t.Error("an expired connection stays open")
	}
	if p.pop() != nil {
		t.Error("an expired connection stays in the pool")
	}
}

// An operation whose answer was unreadable leaves no connection for the next
// operation: more of the answer may still come.
func TestPoolKeepsNoUsedConnection(t *testing.T) {
	s := newSlowLibvirt(t)
	for name, use := range map[string]func(*Conn){
		"unreadable": func(c *Conn) {
			_ = c.Call("list", func(*libvirt.Libvirt) error { return io.ErrUnexpectedEOF })
		},
		"ended": func(c *Conn) {
			err := c.Call("list", func(*libvirt.Libvirt) error { return syscall.EINVAL })
			if !errors.Is(err, ErrLost) {
				t.Errorf("a call on an ended connection: %v", err)
			}
		},
	} {
		var p Pool
		c, err := p.Get(t.Context(), s.socket, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		use(c)
		p.Put(c)
		if p.pop() != nil {
			t.Errorf("%s: the connection is kept", name)
		}
	}
	var p Pool
	c, err := p.Get(t.Context(), s.socket, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Call("find", func(*libvirt.Libvirt) error { return libvirt.Error{Code: uint32(libvirt.ErrNoDomain)} })
	p.Put(c)
	if p.pop() == nil {
		t.Error("after an error that libvirt answered, the connection is not kept")
	}
}
