package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"hostler/internal/fault"
)

// Downloads tunes downloads over https.
type Downloads struct {
	// Tries is the number of consecutive attempts without sufficient progress
	// (see Floor); 0 means 5.
	Tries int
	// Delay is the pause before the second attempt, doubled for each further
	// attempt; 0 means 1 s.
	Delay time.Duration
	// Stall is the longest time without a byte; 0 means 30 s.
	Stall time.Duration
	// Floor is the least speed that counts as progress, in bytes per second
	// over the time of Stall; 0 means 64 KiB/s. Downloads at the same time share
	// the link, so each has its share of the floor.
	Floor int64
	// Limit bounds the time for a file; 0 means 6 h, enough for the largest
	// image (8 GiB) at 400 KiB/s.
	Limit time.Duration
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
	if d.Floor == 0 {
		d.Floor = 64 << 10
	}
	if d.Limit == 0 {
		d.Limit = 6 * time.Hour
	}
	return d
}

const maxRedirects = 5

// httpsSource serves https: references.
type httpsSource struct{ c *Cache }

func (httpsSource) name() string { return sourceHTTPS }

func (s httpsSource) fetch(ctx context.Context, j job) (product, error) {
	target := filepath.Join(j.work, "image")
	if err := s.c.download(ctx, j.ref.Location, target, part{most: MaxSize, keep: true}, j.report); err != nil {
		return product{}, err
	}
	return product{paths: []string{target}, digest: j.ref.Digest}, nil
}

// client is the configured transport with our own redirect policy.
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

// part holds the size in bytes of a file to download, 0 if it is not known, and
// the largest allowed size. keep is set for images: see takePart.
type part struct {
	size, most int64
	keep       bool
}

// errHopeless marks errors after which a download is not resumed at once,
// although a later download may succeed.
var errHopeless = fault.New(fault.Transient, "not resumed")

// download fetches an https URL into a new file. After an interruption, also of
// a former call, it resumes if the server still has the same file, and starts
// again otherwise. An incomplete file is kept as a part, or removed. Errors:
// fault.NotFound if the server has no such file, fault.Invalid for files that
// are too large, transient otherwise.
func (c *Cache) download(ctx context.Context, address, path string, want part, report Progress) (err error) {
	t := &transfer{c: c, url: address, size: -1, most: want.most, report: report, shown: -1}
	if want.size > 0 {
		t.size, t.most = want.size, want.size
	}
	if err := t.open(path, want.keep); err != nil {
		return err
	}
	c.downloads.Add(1)
	defer func() {
		c.downloads.Add(-1)
		if err = errors.Join(err, t.file.Close()); err == nil {
			return
		}
		if want.keep && t.resumable(err, ctx.Err() != nil) {
			c.keepPart(address, path, t.version)
		} else {
			_ = os.Remove(path)
		}
	}()
	limit := c.o.Downloads.Limit
	bounded, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s: %w", limit, errHopeless))
	defer cancel()
	if err := t.run(bounded); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("cannot download %s: %w", redact(address), err)
	}
	return nil
}

// enough is the number of bytes that must arrive within Stall for each of n
// downloads at the same time.
func (d Downloads) enough(n int64) int64 {
	return int64(d.Stall.Seconds()*float64(d.Floor)) / max(n, 1)
}

// contentRange parses "bytes FIRST-LAST/TOTAL"; a total of * is -1.
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

// redact removes possible secrets from an address: user, query and fragment.
func redact(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the address"
	}
	u.RawQuery, u.Fragment, u.User = "", "", nil
	return u.String()
}
