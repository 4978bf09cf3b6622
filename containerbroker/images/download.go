package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// Downloads tunes fetching over https.
type Downloads struct {
	// Tries is how often a download is begun or resumed without getting one
	// byte further; 0 means 5.
	Tries int
	// Delay before the second try, doubled for each one after it; 0 means 1 s.
	Delay time.Duration
	// Stall is how long no byte may come; 0 means 30 s.
	Stall time.Duration
}

func (d Downloads) withDefaults() Downloads {
	if d.Tries == 0 {
		d.Tries = 5
	}
	if d.Delay == 0 {
		d.Delay = time.Second
	}
	if d.Stall == 0 {
		d.Stall = 30 * time.Second
	}
	return d
}

const maxRedirects = 5

// httpsSource serves https: references.
type httpsSource struct{ c *Cache }

func (httpsSource) name() string { return sourceHTTPS }

func (s httpsSource) fetch(ctx context.Context, j job) (product, error) {
	target := filepath.Join(j.work, "image")
	if err := s.c.download(ctx, j.ref.Location, target, 0, j.report); err != nil {
		return product{}, err
	}
	return product{paths: []string{target}, digest: j.ref.Digest}, nil
}

// client is the configured transport with a redirect policy of our own.
func (c *Cache) client() *http.Client {
	client := &http.Client{CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if req.URL.Scheme != "https" {
			return fault.New(fault.Invalid, "it redirects to %s, which is not https", req.URL.Redacted())
		}
		if len(via) > maxRedirects {
			return fault.New(fault.Invalid, "it redirects more than %d times", maxRedirects)
		}
		return nil
	}}
	if c.o.HTTP != nil {
		client.Transport = c.o.HTTP.Transport
	}
	return client
}

// transfer is one file on its way.
type transfer struct {
	c       *Cache
	url     string
	file    *os.File
	have    int64  // bytes in file
	size    int64  // expected, -1 unknown
	version string // ETag or Last-Modified of what is in file
	report  Progress
	shown   int // last percentage
	hit     bool
}

// download fetches an https URL into a new file. It resumes where it broke off
// as long as the server still has the same file, and starts over when not.
// want is the size the file must have, 0 when unknown. Errors: fault.NotFound
// when the server has no such file, fault.Invalid for too large ones,
// transient otherwise.
func (c *Cache) download(ctx context.Context, address, path string, want int64, report Progress) error {
	if want > MaxSize {
		return fault.New(fault.Invalid, "cannot download %s: it has %d bytes, more than 8 GiB", redact(address), want)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	t := &transfer{c: c, url: address, file: f, size: -1, report: report, shown: -1}
	if want > 0 {
		t.size = want
	}
	delay := c.o.Downloads.Delay
	for tries := 1; ; {
		before := t.have
		err := t.attempt(ctx)
		if err == nil {
			return f.Close()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if fault.KindOf(err) != fault.Transient {
			return fmt.Errorf("cannot download %s: %w", redact(address), err)
		}
		if t.have > before {
			tries, delay = 1, c.o.Downloads.Delay
		} else if tries++; tries > c.o.Downloads.Tries {
			return fmt.Errorf("cannot download %s: %w", redact(address), err)
		}
		c.log.Warn("image download broke off and is resumed", "url", redact(address), "bytes", t.have, "reason", err.Error())
		report(fmt.Sprintf("download broke off at %d MiB, resuming", t.have>>20), t.shown)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
		delay = min(2*delay, time.Minute)
	}
}

// attempt makes one request and reads as far as it gets.
func (t *transfer) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := t.c.o.Downloads.Stall
	stalled := time.AfterFunc(stall, func() { cancel(fmt.Errorf("nothing came for %s", stall)) })
	defer stalled.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return fault.Wrap(fault.Invalid, err)
	}
	if req.URL.Scheme != "https" {
		return fault.New(fault.Invalid, "only https is used")
	}
	// Without this the transport would unpack behind our back, and sizes and
	// ranges would be those of something else.
	req.Header.Set("Accept-Encoding", "identity")
	if t.have > 0 && t.version == "" {
		t.restart() // cannot prove that the rest belongs to what is here
	}
	if t.have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", t.have))
		req.Header.Set("If-Range", t.version)
	}
	resp, err := t.c.client().Do(req)
	if err != nil {
		return t.why(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := t.begin(resp); err != nil {
		return err
	}
	return t.why(ctx, t.copy(resp.Body, func() { stalled.Reset(stall) }))
}

// why prefers the reason for which we ended a request to what net/http says.
func (t *transfer) why(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err // without the address, which may hold a token
	}
	return err
}

// begin reads an answer's head.
func (t *transfer) begin(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK:
		t.restart()
	case http.StatusPartialContent:
		first, total, ok := contentRange(resp.Header.Get("Content-Range"))
		if !ok || first != t.have || t.size >= 0 && total >= 0 && total != t.size {
			t.restart()
			return errors.New("the server sent another part than was asked for")
		}
	case http.StatusNotFound, http.StatusGone:
		return fault.New(fault.NotFound, "the server has no such file (%s)", resp.Status)
	case http.StatusRequestedRangeNotSatisfiable:
		t.restart()
		return errors.New("the server has a shorter file than before")
	default:
		return fmt.Errorf("the server answered %s", resp.Status)
	}
	if v := resp.Header.Get("ETag"); v != "" && !strings.HasPrefix(v, "W/") {
		t.version = v
	} else {
		t.version = resp.Header.Get("Last-Modified")
	}
	if resp.ContentLength >= 0 {
		total := t.have + resp.ContentLength
		if total > MaxSize {
			return fault.New(fault.Invalid, "it has %d bytes, more than 8 GiB", total)
		}
		if t.size >= 0 && total != t.size && t.have > 0 {
			t.restart()
			return errors.New("the file has changed its size")
		}
		t.size = total
	}
	if t.size > 0 {
		return t.c.needSpace(t.size - t.have)
	}
	return nil
}

func (t *transfer) restart() {
	t.have, t.version = 0, ""
	_ = t.file.Truncate(0)
	_, _ = t.file.Seek(0, io.SeekStart)
}

// copy reads a body to its end. alive is called whenever bytes came.
func (t *transfer) copy(body io.Reader, alive func()) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			alive()
			if _, err := t.file.Write(buf[:n]); err != nil {
				return err
			}
			t.have += int64(n)
			if t.have > MaxSize {
				return fault.New(fault.Invalid, "it has more than 8 GiB")
			}
			t.tell()
			if !t.hit {
				t.hit = true
				if err := failpoint.Hit(failpoint.LXDImageDownloading); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			if t.size >= 0 && t.have != t.size {
				return fmt.Errorf("it ended after %d of %d bytes", t.have, t.size)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// tell reports each percent once.
func (t *transfer) tell() {
	percent := -1
	if t.size > 0 {
		percent = int(min(t.have*100/t.size, 100))
	}
	if percent != t.shown || t.have <= 256<<10 {
		t.shown = percent
		t.report("downloading "+redact(t.url), percent)
	}
}

// contentRange reads "bytes FIRST-LAST/TOTAL"; a total of * is -1.
func contentRange(s string) (first, total int64, ok bool) {
	span, all, found := strings.Cut(strings.TrimPrefix(s, "bytes "), "/")
	from, _, dashed := strings.Cut(span, "-")
	first, err := strconv.ParseInt(from, 10, 64)
	if !found || !dashed || err != nil {
		return 0, 0, false
	}
	if all == "*" {
		return first, -1, true
	}
	total, err = strconv.ParseInt(all, 10, 64)
	return first, total, err == nil
}

// redact leaves out what may be a secret in an address.
func redact(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the address"
	}
	u.RawQuery, u.Fragment, u.User = "", "", nil
	return u.String()
}
