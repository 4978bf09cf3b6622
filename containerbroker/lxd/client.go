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

// client is a connection for a single operation of the driver.
type client struct {
	ctx context.Context
	lxd *rest.Client
}

// open returns a client whose requests end with ctx. limit bounds each request;
// with 0 only ctx does.
func (d *Driver) open(ctx context.Context, limit time.Duration) *client {
	return &client{ctx: ctx, lxd: rest.Open(ctx, d.opts.Socket, d.opts.RequestTimeout, limit)}
}

// whileAlive returns a context that ends when LXD hangs (e.g. stopped by
// SIGSTOP). A listing of many instances may be slow, so after
// Options.ListTimeout whileAlive sends LXD a request that needs no lookup, and
// a second if the first is not answered in that time: a busy LXD answers late.
func (d *Driver) whileAlive(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	timer := time.AfterFunc(d.opts.ListTimeout, func() {
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
		return "", classify(c.ctx, err)
	}
	if target == nil {
		return tag, nil
	}
	if resp.Type != api.SyncResponse && resp.Type != api.AsyncResponse || len(resp.Metadata) == 0 || string(resp.Metadata) == "null" {
		return "", fault.New(fault.Transient, "LXD gave an answer without content to %s %s", method, path)
	}
	if err := json.Unmarshal(resp.Metadata, target); err != nil {
		return "", fault.New(fault.Transient, "LXD gave an unreadable answer to %s %s: %v", method, path, err)
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
		return op, fault.New(fault.Transient, "LXD started no operation for %s %s", method, path)
	}
	return op, nil
}

// websocket opens a websocket that closes when ctx ends. The caller must call
// release afterwards.
func (c *client) websocket(path string) (conn *websocket.Conn, release func(), err error) {
	conn, err = c.lxd.Websocket(path)
	if err != nil {
		return nil, nil, classify(c.ctx, err)
	}
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	return conn, func() {
		stop()
		_ = conn.Close()
	}, nil
}

// classify gives an error of a request its fault kind. If ctx has ended, the
// result wraps the context's error.
func classify(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%w (%v)", cause, err)
	}
	var broken *url.Error // a connection that was refused or broke off
	if errors.As(err, &broken) {
		return containerbroker.Unreachable("LXD", "lxd", err)
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

// changedMeanwhile reports that an If-Match did not match.
func changedMeanwhile(err error) bool {
	return api.StatusErrorCheck(err, http.StatusPreconditionFailed)
}

func instancePath(name string) string {
	return "/1.0/instances/" + url.PathEscape(name)
}
