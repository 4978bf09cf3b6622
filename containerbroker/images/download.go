package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// Downloads tunes downloads over https.
type Downloads struct {
	// Tries is how many consecutive attempts may make too little progress (see
	// Floor) before the download fails; 0 means 5.
	Tries int
	// Delay is the pause before the second attempt. The pause doubles for each
	// further attempt, up to a minute. 0 means 1 s.
	Delay time.Duration
	// Stall is the longest time for which no byte may arrive; 0 means 30 s.
	Stall time.Duration
	// Floor is the lowest speed that counts as progress, in bytes per second,
	// measured over the time Stall; 0 means 64 KiB/s. It is divided by the
	// number of downloads at the same time, because they share the link.
	Floor int64
	// Limit bounds the time for a file; 0 means 6 h, which is enough for the
	// largest image (8 GiB) at 400 KiB/s.
	Limit time.Duration
}

func (d Downloads) withDefaults() Downloads {
	d.Tries = cmp.Or(d.Tries, 5)
	d.Delay = cmp.Or(d.Delay, time.Second)
	d.Stall = cmp.Or(d.Stall, 30*time.Second)
	d.Floor = cmp.Or(d.Floor, 64<<10)
	d.Limit = cmp.Or(d.Limit, 6*time.Hour)
	return d
}

const maxRedirects = 5

// httpsSource serves https: references.
type httpsSource struct{ c *Cache }

func (httpsSource) name() string { return sourceHTTPS }

func (s httpsSource) fetch(ctx context.Context, j job) (product, error) {
	target := filepath.Join(j.work, "image")
	if err := s.c.download(ctx, j.ref.Location, target, part{most: maxImageSize, keep: true}, j.report); err != nil {
		return product{}, err
	}
	return product{paths: []string{target}, digest: j.ref.Digest}, nil
}

// client returns an HTTP client with the configured transport. It follows at
// most maxRedirects redirects, and only to https.
func (c *Cache) client() *http.Client {
	client := &http.Client{CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if req.URL.Scheme != "https" {
			return fault.New(fault.Invalid, "it redirects to %s, which is not https", oneline.Address(req.URL.String()))
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

// part describes a file to download. size is its size in bytes, 0 if the size
// is not known. most is the largest permitted size. keep is true if an
// incomplete file is kept for the next download, see takePart().
type part struct {
	size, most int64
	keep       bool
}

// errHopeless marks transient errors after which the running download makes no
// further attempt. A later download may succeed.
var errHopeless = fault.New(fault.Transient, "not resumed")

// download fetches an https URL into a new file. After an interruption, also of
// an earlier call, it goes on from there if the server still has the same file.
// Otherwise it starts again. If it fails, it keeps the incomplete file as a
// part or removes it. It returns fault.NotFound if the server has no such file,
// fault.Invalid if the file is too large, and otherwise a transient error.
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
		return fmt.Errorf("cannot download %s: %w", oneline.Address(address), err)
	}
	return nil
}

// enough returns how many bytes must arrive within the time Stall for each of n
// downloads at the same time.
func (d Downloads) enough(n int64) int64 {
	return int64(d.Stall.Seconds()*float64(d.Floor)) / max(n, 1)
}

// contentRange parses a header of the form "bytes FIRST-LAST/TOTAL". It returns
// the total -1 if TOTAL is *, i.e. unknown.
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
