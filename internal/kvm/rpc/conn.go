// Package rpc is a connection to libvirt that survives a libvirt which hangs,
// dies or sends garbage. Every call has a deadline, and every frame has a
// maximum size.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/internal/fault"
)

// Conn is a connection to libvirt. A single operation uses the connection, or a
// session keeps it. It never reconnects. The library has no deadlines. If a
// call exceeds its limit, Conn closes the connection, which ends all its calls.
type Conn struct {
	ctx   context.Context
	limit time.Duration // of one call
	lib   *libvirt.Libvirt
	raw   net.Conn
	once  sync.Once
	mu    sync.Mutex // guards stop and used
	stop  func() bool
	// used is true if the connection serves no further operation, because a call
	// ended without an answer of libvirt's.
	used bool
	// Gone is closed together with the connection.
	Gone chan struct{}
}

// dialer passes an open connection to the library.
type dialer struct{ c net.Conn }

func (d dialer) Dial() (net.Conn, error) { return d.c, nil }

// Dial returns a connection to libvirt's socket. limit bounds each call. The
// connection ends with ctx, and the caller must call Close. Domain events go to
// onEvent, which may be nil, in the goroutine that reads the connection.
func Dial(ctx context.Context, socket string, limit time.Duration, onEvent func(Event)) (*Conn, error) {
	raw, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fault.New(fault.Transient, "cannot reach libvirt: %w", err)
	}
	c := &Conn{
		ctx: ctx, limit: limit, raw: raw, Gone: make(chan struct{}),
		lib: libvirt.NewWithDialer(dialer{&wire{Conn: raw, onEvent: onEvent}}),
	}
	c.mu.Lock()
	c.stop = context.AfterFunc(ctx, c.Close)
	c.mu.Unlock()
	if err := c.Call("connect to libvirt", func(l *libvirt.Libvirt) error { return l.ConnectToURI(libvirt.QEMUSystem) }); err != nil {
		c.Close()
		return nil, fmt.Errorf("cannot reach libvirt: %w", err)
	}
	// If the connection breaks right after it was made, the library may never
	// close this channel. In this case the limit of the next call ends the
	// connection.
	go func() {
		<-c.lib.Disconnected()
		c.Close()
	}()
	return c, nil
}

// Close ends the connection and all calls on it. Repeated calls do nothing.
func (c *Conn) Close() {
	c.once.Do(func() {
		c.mu.Lock()
		stop := c.stop
		c.mu.Unlock()
		if stop != nil {
			stop()
		}
		_ = c.raw.Close()
		close(c.Gone)
	})
}

// unbind ends the connection's dependence on the context of its operation. It
// returns false if the connection cannot serve another operation.
func (c *Conn) unbind() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stop() || c.used { // a context that has ended closes the connection
		return false
	}
	select {
	case <-c.Gone:
		return false
	default:
		return true
	}
}

// rebind makes an idle connection end with another operation's context.
func (c *Conn) rebind(ctx context.Context, limit time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.Gone:
		return false
	default:
	}
	c.ctx, c.limit = ctx, limit
	c.stop = context.AfterFunc(ctx, c.Close)
	return true
}

// Call makes a call. what completes the error text, e.g. "define the domain"
// gives "cannot define the domain: …".
func (c *Conn) Call(what string, f func(*libvirt.Libvirt) error) error {
	return c.CallWithin(c.limit, what, f)
}

// useUp keeps the connection from serving another operation.
func (c *Conn) useUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = true
}

// CallWithin does the same as Call, with the given limit. The call runs in a
// goroutine that may outlive CallWithin. A panic in the call becomes an error
// of this call alone.
func (c *Conn) CallWithin(limit time.Duration, what string, f func(*libvirt.Libvirt) error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("libvirt gave an unreadable answer: %v", p)
			}
		}()
		done <- f(c.lib)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var err error
	select {
	case err = <-done:
	case <-timer.C:
		c.Close()
		err = fault.New(fault.Transient, "%w within %s", ErrLate, limit)
	case <-c.ctx.Done():
		c.Close()
		err = c.ctx.Err()
	case <-c.Gone:
		select {
		case err = <-done: // the answer arrived in time after all
		default:
			err = ErrLost
		}
	}
	if err == nil {
		return nil
	}
	if !errors.As(err, new(libvirt.Error)) {
		c.useUp()
	}
	return fmt.Errorf("cannot %s: %w", what, classify(c.ctx, err))
}

// ErrLost means that the connection broke during a call, so the outcome of the
// call is unknown.
var ErrLost = fault.New(fault.Transient, "libvirt closed the connection")

// ErrLate means that a call took too long, so libvirt may still be carrying it out.
var ErrLate = errors.New("libvirt gave no answer")

// classify returns an error of libvirt with its fault kind. If ctx has ended,
// the result wraps ctx's error.
func classify(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%v)", cause, err)
	}
	var told libvirt.Error
	if !errors.As(err, &told) {
		// The library returns EINVAL for a connection that has ended before.
		if errors.Is(err, libvirt.ErrInterrupted) || errors.Is(err, syscall.EINVAL) {
			return ErrLost
		}
		return err
	}
	err = errors.New(Clean(told.Message, maxMessage))
	switch libvirt.ErrorNumber(told.Code) {
	case libvirt.ErrNoDomain, libvirt.ErrNoNetwork, libvirt.ErrNoStoragePool, libvirt.ErrNoStorageVol, libvirt.ErrNoSecret,
		libvirt.ErrNoDomainMetadata:
		return fault.Wrap(fault.NotFound, err)
	case libvirt.ErrAgentUnresponsive:
		return fault.Wrap(fault.NotReady, err)
	case libvirt.ErrOperationInvalid:
		return fault.Wrap(fault.NotReady, err)
	case libvirt.ErrAuthFailed, libvirt.ErrAuthCancelled, libvirt.ErrAuthUnavailable, libvirt.ErrAccessDenied, libvirt.ErrOperationDenied:
		return fault.Wrap(fault.NeedsOperator, err)
	case libvirt.ErrDomExist, libvirt.ErrStorageVolExist:
		return fault.Wrap(fault.Conflict, err)
	case libvirt.ErrXMLError, libvirt.ErrXMLDetail, libvirt.ErrInvalidArg, libvirt.ErrConfigUnsupported, libvirt.ErrXMLInvalidSchema:
		return fault.Wrap(fault.Invalid, err)
	}
	return fault.Wrap(fault.Transient, err)
}

// Value makes a call that returns a value.
func Value[T any](c *Conn, what string, f func(*libvirt.Libvirt) (T, error)) (T, error) {
	return valueWithin(c, c.limit, what, f)
}

func valueWithin[T any](c *Conn, limit time.Duration, what string, f func(*libvirt.Libvirt) (T, error)) (T, error) {
	var v T
	err := c.CallWithin(limit, what, func(l *libvirt.Libvirt) error {
		got, err := f(l)
		if err == nil {
			v = got
		}
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return v, nil
}
