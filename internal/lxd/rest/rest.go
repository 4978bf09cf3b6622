// Package rest sends requests to the REST API of LXD or Incus over its Unix
// socket. It uses the types of LXD's Go library but not its client. The client
// would link an OpenID client, an SFTP client and a template engine into a
// daemon that runs as root, and its dial ignores the context.
//
// The API: https://documentation.ubuntu.com/lxd/en/latest/rest-api/
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/gorilla/websocket"
)

// maxResponse bounds an answer of LXD in bytes. A listing of 10,000 instances
// takes about 40 MiB.
const maxResponse = 128 << 20

// base is the host in request URLs, which stands for the socket.
const base = "unix.socket"

// Client sends the requests of an operation. It keeps no connection between
// requests and needs no closing.
type Client struct {
	ctx  context.Context
	name string
	http *http.Client
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Open returns a client for a daemon's socket. name is the daemon's name in
// messages. The client's requests end with ctx. dial bounds the time of each
// connect, and limit the time of each request with its answer; 0 means no bound
// besides ctx.
func Open(ctx context.Context, name, socket string, dial, limit time.Duration) *Client {
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: dial}).DialContext(ctx, "unix", socket)
	}
	return &Client{ctx: ctx, name: name, dial: connect, http: &http.Client{
		Timeout:       limit,
		Transport:     bounded{&http.Transport{DialContext: connect, DisableKeepAlives: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Do sends a request whose body or answer is not JSON. path starts with a
// slash. The caller must close the answer's body.
func (c *Client) Do(method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(c.ctx, method, "http://"+base+path, body)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("User-Agent", "hostler")
	return c.http.Do(req)
}

// Query sends body as JSON unless it is nil. It sends a non-empty etag as
// If-Match and returns the answer's ETag. The error for a refusal by the daemon
// is an api.StatusError.
func (c *Client) Query(method, path string, body any, etag string) (*api.Response, string, error) {
	header, content := http.Header{}, io.Reader(http.NoBody)
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, "", err
		}
		content = bytes.NewReader(text)
		header.Set("Content-Type", "application/json")
	}
	if etag != "" {
		header.Set("If-Match", etag)
	}
	resp, err := c.Do(method, path, header, content)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	answer, err := c.decode(resp)
	return answer, resp.Header.Get("ETag"), err
}

// Get requests path, decodes the answer's metadata into target and returns the
// answer's ETag.
func (c *Client) Get(path string, target any) (etag string, err error) {
	answer, etag, err := c.Query(http.MethodGet, path, nil, "")
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(answer.Metadata, target); err != nil {
		return "", fmt.Errorf("%s gave an unreadable answer to GET %s: %w", c.name, path, err)
	}
	return etag, nil
}

// Send requests a change that the daemon completes before it answers.
func (c *Client) Send(method, path string, body any, etag string) error {
	_, _, err := c.Query(method, path, body, etag)
	return err
}

func (c *Client) decode(resp *http.Response) (*api.Response, error) {
	var answer api.Response
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		if resp.StatusCode/100 != 2 {
			return nil, api.StatusErrorf(resp.StatusCode, "%s answered %s", c.name, resp.Status)
		}
		return nil, fmt.Errorf("%s gave an unreadable answer: %w", c.name, err)
	}
	if answer.Type == api.ErrorResponse {
		return nil, api.StatusErrorf(resp.StatusCode, "%s", answer.Error)
	}
	return &answer, nil
}

// Websocket opens a websocket, which stays open after the client's context
// ends.
func (c *Client) Websocket(path string) (*websocket.Conn, error) {
	dialer := websocket.Dialer{NetDialContext: c.dial, HandshakeTimeout: 5 * time.Second}
	conn, resp, err := dialer.DialContext(c.ctx, "ws://"+base+path, http.Header{"User-Agent": {"hostler"}})
	if err == nil {
		return conn, nil
	}
	if resp != nil {
		defer resp.Body.Close()
		if _, refused := c.decode(resp); refused != nil {
			return nil, refused
		}
	}
	return nil, err
}

// bounded limits the length of each answer.
type bounded struct{ inner *http.Transport }

func (t bounded) RoundTrip(req *http.Request) (*http.Response, error) {
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
