package kvm

import (
	"context"
	"errors"
	"net"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
	"hostler/internal/kvm/rpc"
)

// conn is a connection for a single call of the driver, or the connection of a
// session.
type conn struct {
	*rpc.Conn
	ctx   context.Context
	limit time.Duration // time limit of one call
	home  *rpc.Pool     // Close puts the connection back into this pool; if nil, Close closes it
	// another returns a further connection for the same operation.
	another func() (*conn, error)
}

// Close closes the connection, or puts it back into its pool.
func (c *conn) Close() {
	if c.home != nil {
		c.home.Put(c.Conn)
		return
	}
	c.Conn.Close()
}

// open returns a connection that is closed when ctx ends. The caller must call
// Close.
func (d *Driver) open(ctx context.Context) (*conn, error) { return d.dial(ctx, nil) }

// borrow is like open(), but may return a connection of an earlier operation,
// and Close keeps the connection for later ones. All calls must have ended
// before Close. An operation that opens a stream to a guest, or cancels a call
// by closing the connection, must use open().
func (d *Driver) borrow(ctx context.Context) (*conn, error) {
	c, err := d.lateCalls.Pool.Get(ctx, d.opts.Socket, d.opts.RequestTimeout)
	opened, err := d.opened(ctx, c, err)
	if err == nil {
		opened.home = &d.lateCalls.Pool
	}
	return opened, err
}

func (d *Driver) dial(ctx context.Context, onEvent func(rpc.Event)) (*conn, error) {
	c, err := rpc.Dial(ctx, d.opts.Socket, d.opts.RequestTimeout, onEvent)
	return d.opened(ctx, c, err)
}

func (d *Driver) opened(ctx context.Context, c *rpc.Conn, err error) (*conn, error) {
	var refused *net.OpError
	if ctx.Err() == nil && errors.As(err, &refused) {
		return nil, containerbroker.Unreachable("libvirt", "libvirtd", err)
	}
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, ctx: ctx, limit: d.opts.RequestTimeout, another: func() (*conn, error) { return d.open(ctx) }}, nil
}

// value makes a call of libvirt that returns a value.
func value[T any](c *conn, what string, f func(*libvirt.Libvirt) (T, error)) (T, error) {
	return rpc.Value(c.Conn, what, f)
}

// slowCall makes a call of libvirt that may take longer, because libvirt may
// probe QEMU's capabilities first.
func slowCall[T any](d *Driver, c *conn, what string, f func(*libvirt.Libvirt) (T, error)) (T, error) {
	return rpc.CallUnlessLate(c.ctx, &d.lateCalls, d.opts.Socket, c.limit, d.opts.StartTimeout, what, f)
}

func (c *conn) domain(name string) (libvirt.Domain, error) {
	return value(c, "find domain "+name, func(l *libvirt.Libvirt) (libvirt.Domain, error) { return l.DomainLookupByName(name) })
}

// clean removes control characters, which a terminal would interpret, and
// shortens the text to limit.
func clean(text string, limit int) string { return rpc.Clean(text, limit) }
