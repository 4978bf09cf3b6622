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

// conn is a connection for a single operation of the driver, or the connection
// of a session.
type conn struct {
	*rpc.Conn
	ctx   context.Context
	limit time.Duration // of one call
}

// open returns a connection that ends with ctx. Close must be called.
func (d *Driver) open(ctx context.Context) (*conn, error) { return d.dial(ctx, nil) }

func (d *Driver) dial(ctx context.Context, onEvent func(rpc.Event)) (*conn, error) {
	c, err := rpc.Dial(ctx, d.opts.Socket, d.opts.RequestTimeout, onEvent)
	var refused *net.OpError
	if ctx.Err() == nil && errors.As(err, &refused) {
		return nil, containerbroker.Unreachable("libvirt", "libvirtd", err)
	}
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, ctx: ctx, limit: d.opts.RequestTimeout}, nil
}

// value makes a call that returns a value.
func value[T any](c *conn, what string, f func(*libvirt.Libvirt) (T, error)) (T, error) {
	return rpc.Value(c.Conn, what, f)
}

// slowCall makes a call that may have to wait while libvirt probes QEMU's
// capabilities.
func slowCall[T any](d *Driver, c *conn, what string, f func(*libvirt.Libvirt) (T, error)) (T, error) {
	return rpc.CallUnlessLate(c.ctx, &d.lateCalls, d.opts.Socket, c.limit, d.opts.StartTimeout, what, f)
}

func (c *conn) domain(name string) (libvirt.Domain, error) {
	return value(c, "find domain "+name, func(l *libvirt.Libvirt) (libvirt.Domain, error) { return l.DomainLookupByName(name) })
}

// clean removes control characters, which a terminal would interpret, and
// bounds the length.
func clean(text string, limit int) string { return rpc.Clean(text, limit) }
