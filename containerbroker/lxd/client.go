package lxd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
	"github.com/gorilla/websocket"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// maxResponse bounds an answer of LXD; 10,000 instances take about 40 MiB.
const maxResponse = 128 << 20

// client is a connection for one operation of the driver. The library shares
// a context between copies of its client and never stops its goroutines, so
// no client outlives the operation it was made for, and of the library only
// the calls that start no goroutine are used.
type client struct {
	ctx  context.Context
	lxd  lxdclient.InstanceServer
	http *http.Client
}

// open returns a client whose requests end with ctx; limit bounds each single
// request, 0 leaves that to ctx.
func (d *Driver) open(ctx context.Context, limit time.Duration) (*client, error) {
	server, err := lxdclient.ConnectLXDUnixWithContext(ctx, d.opts.Socket, &lxdclient.ConnectionArgs{
		SkipGetServer: true, // one request per listing means one
		TransportWrapper: func(t *http.Transport) lxdclient.HTTPTransporter {
			// The library's dialer ignores its context.
			t.DialContext = func(_ context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{Timeout: d.opts.RequestTimeout}).DialContext(ctx, "unix", d.opts.Socket)
			}
			return transport{t}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot reach LXD: %w", err)
	}
	hc, err := server.GetHTTPClient()
	if err != nil {
		return nil, fmt.Errorf("cannot reach LXD: %w", err)
	}
	hc.Timeout = limit
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{ctx: ctx, lxd: server, http: hc}, nil
}

// transport bounds what is read of an answer.
type transport struct{ inner *http.Transport }

func (t transport) Transport() *http.Transport { return t.inner }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.inner.RoundTrip(req)
	if err == nil && resp.Body != nil {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxResponse}
	}
	return resp, err
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the answer is too large")
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}

// query sends one request and decodes the answer's metadata into target,
// which may be nil. etag goes out as If-Match; the answer's is returned.
func (c *client) query(method, path string, body any, etag string, target any) (string, error) {
	resp, tag, err := c.lxd.RawQuery(method, path, body, etag)
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
		return op, fault.New(fault.Transient, "LXD began no operation for %s %s", method, path)
	}
	return op, nil
}

// websocket opens a websocket that is closed when ctx ends. release must be
// called when it is no longer used.
func (c *client) websocket(path string) (conn *websocket.Conn, release func(), err error) {
	conn, err = c.lxd.RawWebsocket(path)
	if err != nil {
		return nil, nil, classify(c.ctx, err)
	}
	if conn == nil { // the library swallows the error of a refused upgrade
		return nil, nil, fault.New(fault.Transient, "LXD refused the websocket")
	}
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	return conn, func() {
		stop()
		_ = conn.Close()
	}, nil
}

// classify gives an error of a request its kind; a context's own error stays
// findable.
func classify(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%w (%v)", cause, err)
	}
	var broken *url.Error // of a connection that was refused or broke off
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

// changedMeanwhile says that an If-Match did not match.
func changedMeanwhile(err error) bool {
	return api.StatusErrorCheck(err, http.StatusPreconditionFailed)
}

func instancePath(name string) string {
	return "/1.0/instances/" + url.PathEscape(name)
}
