package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"hostler/internal/fault"
)

// ErrNotRunning is wrapped by the error of a call if no agent listens on the
// socket.
var ErrNotRunning = errors.New("the agent is not running")

// Client speaks to an agent over its unix socket. It is safe for concurrent
// use. Errors carry the kind and text of the agent's answer. The client repeats
// no call. If an answer is lost, the error is transient, and the caller must
// check the outcome.
type Client struct {
	socket string
	// streams makes the calls whose answer lasts, e.g. watches. calls makes all
	// other calls, so that streams take no connection from them.
	calls, streams *http.Client
}

// dialTimeout bounds only the time to connect. Calls are bounded by their
// context.
const dialTimeout = 5 * time.Second

// New returns a client for the agent that listens on socket. It connects
// at the first call.
func New(socket string) *Client { return NewBounded(socket, 0, 0) }

// NewBounded returns a client as New() does, with limits on the simultaneous
// connections for calls and for streams. Calls above a limit wait. 0 means no
// limit.
func NewBounded(socket string, calls, streams int) *Client {
	c := &Client{socket: socket}
	c.calls, c.streams = c.over(calls), c.over(streams)
	return c
}

// over returns an HTTP client over the socket with at most n connections. 0
// means no limit.
func (c *Client) over(n int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
			MaxConnsPerHost:     n,
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     30 * time.Second,
			DisableCompression:  true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes idle connections.
func (c *Client) Close() {
	c.calls.CloseIdleConnections()
	c.streams.CloseIdleConnections()
}

// dial connects. For each kind of failure the error says how to
// resolve it.
func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "unix", c.socket)
	switch {
	case err == nil:
		return conn, nil
	case isOther(c.socket):
		return nil, fault.New(fault.NotReady, "cannot reach the agent at %s: it is not a socket (--socket or HOSTLER_SOCKET names the agent's socket)", c.socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fault.Wrap(fault.NotReady, fmt.Errorf("cannot reach the agent at %s: %w "+
			"(start it with `systemctl start hostlerd`; --socket or HOSTLER_SOCKET names another socket)", c.socket, ErrNotRunning))
	case errors.Is(err, fs.ErrPermission):
		return nil, fault.New(fault.Forbidden,
			"cannot reach the agent at %s: %w (use sudo, or join the group hostler or hostler-admin)", c.socket, fs.ErrPermission)
	default:
		return nil, fault.New(fault.Transient, "cannot reach the agent at %s: %w", c.socket, err)
	}
}

// isOther reports whether the path is there and is not a socket.
func isOther(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() != fs.ModeSocket
}

// host is never resolved, because every connection goes to the socket.
const host = "http://hostler"

// KeyHeader identifies a change. A client that lost the answer sends the
// request again with the same key, and the change is made once.
const KeyHeader = "Idempotency-Key"

// noticeHeader explains in a sentence why an answer is incomplete; the header
// is repeated for each reason.
const noticeHeader = "Hostler-Notice"

// MissingHeader names a part that is missing in an answer because it could not
// be read; the header is repeated for each part.
const MissingHeader = "Hostler-Missing"

func (c *Client) request(ctx context.Context, method, path string, query url.Values, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		b, err := Encode(in)
		if err != nil {
			return nil, fault.New(fault.Invalid, "cannot encode the request: %v", err)
		}
		body = bytes.NewReader(b)
	}
	u := host + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot make the request: %v", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if method != http.MethodGet {
		req.Header.Set(KeyHeader, rand.Text())
	}
	return req, nil
}

// open makes a call and returns a successful answer; the caller closes the
// body.
func (c *Client) open(ctx context.Context, method, path string, query url.Values, in any) (*http.Response, error) {
	return c.do(ctx, c.calls, method, path, query, in)
}

// OpenStream works like open(), but for an answer that lasts.
func (c *Client) OpenStream(ctx context.Context, method, path string, query url.Values, in any) (*http.Response, error) {
	return c.do(ctx, c.streams, method, path, query, in)
}

func (c *Client) do(ctx context.Context, over *http.Client, method, path string, query url.Values, in any) (*http.Response, error) {
	req, err := c.request(ctx, method, path, query, in)
	if err != nil {
		return nil, err
	}
	resp, err := over.Do(req)
	if err != nil {
		return nil, CallError(ctx, err)
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, answerError(resp)
	}
	return resp, nil
}

// Call makes a call and decodes the JSON answer into out. If out is nil, the
// answer is dropped.
func (c *Client) Call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	resp, err := c.open(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fault.New(fault.Transient, "cannot read the agent's answer: %w", err)
	}
	return nil
}

// CallError returns the error of a call without the wrapping of net/http. An
// error without a kind becomes transient.
func CallError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	for _, kind := range []fault.Kind{fault.NotReady, fault.Forbidden, fault.Transient} {
		if fault.Is(err, kind) {
			return err
		}
	}
	return fault.New(fault.Transient, "lost the agent's answer: %w", err)
}

// Encode returns JSON that leaves <, > and & unescaped, so that stored text
// passes through unchanged.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}
