package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"hostler/agent/spec"
	"hostler/internal/fault"
)

// WatchRows calls fn() with all rows of each kind, and again with all rows of a
// kind after one of them changed. kinds are in the plural, as in Get(). If
// machines is not empty, only the rows of these machines are sent. It returns the error of
// fn() or ctx, or a transient error if the stream is lost.
func (c *Client) WatchRows(ctx context.Context, kinds, machines []string, fn func(kind string, rows json.RawMessage) error) error {
	return c.stream(ctx, http.MethodGet, "/v1/watch/rows", url.Values{"kind": kinds, "name": machines}, nil, func(m Line) error {
		if m.Rows == nil {
			return nil
		}
		return fn(m.Rows.Kind, m.Rows.Rows)
	})
}

// WatchEvents calls fn() with each event whose Seq is above after. object is
// the same as in Events(). The errors are those of WatchRows().
func (c *Client) WatchEvents(ctx context.Context, after int64, object string, fn func(Event) error) error {
	return c.stream(ctx, http.MethodGet, "/v1/watch/events", eventQuery(after, object, 0), nil, func(m Line) error {
		if m.Event == nil {
			return nil
		}
		return fn(*m.Event)
	})
}

// WatchFolder calls fn() with the state of conf.d, at first and after the agent
// read the files again. The errors are those of WatchMachines().
func (c *Client) WatchFolder(ctx context.Context, fn func(FolderState) error) error {
	return c.stream(ctx, http.MethodGet, "/v1/watch/folder", nil, nil, func(m Line) error {
		if m.Folder == nil {
			return nil
		}
		return fn(*m.Folder)
	})
}

// ImageImport imports a file of the host into the image cache under a
// reference. If digest is empty, the agent computes it and returns it in the
// row.
func (c *Client) ImageImport(ctx context.Context, path, reference, digest string, progress func(message string, percent int)) (Image, error) {
	return c.ImageWork(ctx, "/v1/images/import", ImageImportRequest{Path: path, Reference: reference, Digest: digest}, progress)
}

// ImageBuild builds an image on the host in the format of a container type;
// empty means lxd. progress may be nil; percent is -1 if unknown.
func (c *Client) ImageBuild(ctx context.Context, reference string, t spec.ContainerType, progress func(message string, percent int)) (Image, error) {
	return c.ImageWork(ctx, "/v1/images/build", ImageBuildRequest{Reference: reference, Type: t}, progress)
}

// ImageWork makes a call that makes an image available, and returns the image.
// progress may be nil.
func (c *Client) ImageWork(ctx context.Context, path string, in any, progress func(string, int)) (Image, error) {
	var img Image
	err := c.stream(ctx, http.MethodPost, path, nil, in, func(m Line) error {
		if m.Progress != nil && progress != nil {
			progress(m.Progress.Message, m.Progress.Percent)
		}
		if m.Image != nil {
			img = *m.Image
		}
		return nil
	})
	return img, err
}

// MaxLine bounds a line of a stream, in bytes. The rows of 10,000 machines fit.
const MaxLine = 32 << 20

// stream reads lines until the stream is done, fails or breaks off. A stream
// that ends without a result is a transient error.
func (c *Client) stream(ctx context.Context, method, path string, query url.Values, in any, fn func(Line) error) error {
	resp, err := c.OpenStream(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), MaxLine)
	for lines.Scan() {
		var m Line
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return fault.New(fault.Transient, "cannot read the agent's stream: %w", err)
		}
		if m.Problem != nil {
			return m.Problem.Fault()
		}
		if err := fn(m); err != nil {
			return err
		}
		if m.Done {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return CallError(ctx, err)
	}
	return CallError(ctx, errors.New("the stream ended"))
}

// LogOptions select a part of a console log.
type LogOptions struct {
	// Tail is the number of last lines to begin with. Negative means all lines.
	Tail int
	// Follow continues with new output.
	Follow bool
}

// query encodes the options for the server.
func (o LogOptions) query() url.Values {
	q := url.Values{}
	if o.Tail >= 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	if o.Follow {
		q.Set("follow", "true")
	}
	return q
}

// Logs returns a machine's console log, which the caller closes. If o.Follow is
// set, the log ends with ctx.
func (c *Client) Logs(ctx context.Context, machine string, o LogOptions) (io.ReadCloser, error) {
	resp, err := c.OpenStream(ctx, http.MethodGet, machinePath(machine, "log"), o.query(), nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
