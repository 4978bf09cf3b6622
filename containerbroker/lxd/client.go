package lxd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/gorilla/websocket"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/lxd/rest"
)

// client sends the requests of a single call of the driver.
type client struct {
	ctx     context.Context
	lxd     *rest.Client
	dialect Dialect
}

// open returns a client whose requests end when ctx ends. limit also bounds
// each request, unless it is 0.
func (d *Driver) open(ctx context.Context, limit time.Duration) *client {
	server := rest.Open(ctx, d.opts.Dialect.Name, d.opts.Socket, d.opts.RequestTimeout, limit)
	return &client{ctx: ctx, lxd: server, dialect: d.opts.Dialect}
}

// whileAlive returns a context that ends when LXD hangs (e.g. stopped by
// SIGSTOP), and a function that releases it. A listing of many instances may be
// slow. So after Options.ListTimeout whileAlive sends LXD a request that needs
// no lookup, and at once if the event stream was lost because LXD did not
// answer. Because a busy LXD answers late, it sends a second request if the
// first gets no answer within that time.
func (d *Driver) whileAlive(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	wait := d.opts.ListTimeout
	if d.silent.Load() {
		wait = 0
	}
	timer := time.AfterFunc(wait, func() {
		var err error
		for range 2 {
			_, err = d.open(ctx, d.opts.ListTimeout).query(http.MethodGet, "/", nil, "", nil)
			if containerbroker.Unanswered(err) == "" {
				return
			}
		}
		cancel(err)
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// query sends a request and decodes the answer's metadata into target, which
// may be nil. It sends etag as If-Match and returns the answer's ETag.
func (c *client) query(method, path string, body any, etag string, target any) (string, error) {
	resp, tag, err := c.lxd.Query(method, path, body, etag)
	if err != nil {
		return "", c.classify(err)
	}
	if target == nil {
		return tag, nil
	}
	if resp.Type != api.SyncResponse && resp.Type != api.AsyncResponse || len(resp.Metadata) == 0 || string(resp.Metadata) == "null" {
		return "", fault.New(fault.Transient, "%s gave an answer without content to %s %s", c.dialect.Name, method, path)
	}
	if err := json.Unmarshal(resp.Metadata, target); err != nil {
		return "", fault.New(fault.Transient, "%s gave an unreadable answer to %s %s: %v", c.dialect.Name, method, path, err)
	}
	return tag, nil
}

func (c *client) get(path string, target any) (etag string, err error) {
	return c.query(http.MethodGet, path, nil, "", target)
}

// start sends a request that begins an operation.
func (c *client) start(method, path string, body any, etag string) (api.Operation, error) {
	var op api.Operation
	if _, err := c.query(method, path, body, etag, &op); err != nil {
		return op, err
	}
	if op.ID == "" {
		return op, fault.New(fault.Transient, "%s started no operation for %s %s", c.dialect.Name, method, path)
	}
	return op, nil
}

// websocket opens a websocket that closes when ctx ends. The caller must call
// release afterwards.
func (c *client) websocket(path string) (conn *websocket.Conn, release func(), err error) {
	conn, err = c.lxd.Websocket(path)
	if err != nil {
		return nil, nil, c.classify(err)
	}
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	return conn, func() {
		stop()
		_ = conn.Close()
	}, nil
}

// classify returns the error of a request with a fault kind. If the client's
// context has ended, the result wraps the context's error.
func (c *client) classify(err error) error {
	if cause := c.ctx.Err(); cause != nil {
		return fmt.Errorf("%w (%v)", cause, err)
	}
	var broken *url.Error // a connection that was refused or broke off
	if errors.As(err, &broken) {
		return containerbroker.Unreachable(c.dialect.Name, c.dialect.Unit, err)
	}
	status, _ := api.StatusErrorMatch(err)
	switch status {
	case http.StatusNotFound:
		return fault.Wrap(fault.NotFound, err)
	case http.StatusBadRequest:
		return fault.Wrap(fault.Invalid, err)
	case http.StatusForbidden, http.StatusUnauthorized:
		return fault.Wrap(fault.NeedsOperator, err)
	case http.StatusConflict:
		return fault.Wrap(fault.Conflict, err)
	}
	return fault.Wrap(fault.Transient, err)
}

// changedMeanwhile reports whether a request failed because another client had
// changed the object, so that If-Match did not match.
func changedMeanwhile(err error) bool {
	return api.StatusErrorCheck(err, http.StatusPreconditionFailed)
}

func instancePath(name string) string {
	return "/1.0/instances/" + url.PathEscape(name)
}
