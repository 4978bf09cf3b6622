package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// transfer is a running download of a file.
type transfer struct {
	c       *Cache
	url     string
	file    *os.File
	have    int64 // bytes in file
	size    int64 // expected size; -1 if it is not known
	most    int64
	version string // ETag or Last-Modified of the bytes in file
	report  Progress
	shown   int // last percentage
	hit     bool
	full    bool  // the disk has no room for the file
	sharing int64 // largest number of downloads at the same time since the last check of the speed
}

// open makes the file. If parts is set and an earlier download left a part, it
// takes the part instead.
func (t *transfer) open(path string, parts bool) (err error) {
	if parts {
		t.version = t.c.takePart(t.url, path)
	}
	flags := os.O_RDWR | os.O_CREATE | os.O_EXCL
	if t.version != "" {
		flags = os.O_RDWR
	}
	if t.file, err = os.OpenFile(path, flags, 0o600); err != nil {
		return err
	}
	if t.have, err = t.file.Seek(0, io.SeekEnd); err != nil {
		_ = t.file.Close()
		return err
	}
	if t.have >= t.most || t.size >= 0 && t.have >= t.size {
		t.restart()
	}
	return nil
}

// run makes attempts until the file is complete, an error is final, or too many
// consecutive attempts made no progress.
func (t *transfer) run(ctx context.Context) error {
	o := t.c.o.Downloads
	delay := o.Delay
	most := t.have
	for tries := 1; ; {
		t.sharing = 0
		err := t.attempt(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if fault.KindOf(err) != fault.Transient || errors.Is(err, errHopeless) {
			return err
		}
		// A few bytes do not count as progress, and after a restart neither do
		// bytes that had arrived before. Otherwise the server could be asked
		// for ever.
		if t.have-most > o.enough(t.sharing) {
			tries, delay = 1, o.Delay
		} else if tries++; tries > o.Tries {
			return err
		}
		most = max(most, t.have)
		t.c.log.Warn("image download broke off and is resumed", "url", oneline.Address(t.url), "bytes", t.have, "reason", err.Error())
		t.report(fmt.Sprintf("download broke off at %d MiB, resuming", t.have>>20), t.shown)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(delay):
		}
		delay = min(2*delay, time.Minute)
	}
}

// attempt makes a request and reads until the body ends or fails.
func (t *transfer) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := t.c.o.Downloads.Stall
	stalled := time.AfterFunc(stall, func() { cancel(fmt.Errorf("no data arrived for %s", stall)) })
	defer stalled.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return fault.Wrap(fault.Invalid, err)
	}
	if req.URL.Scheme != "https" {
		return fault.New(fault.Invalid, "only https is used")
	}
	// Without this header net/http would decompress the body, and sizes and
	// ranges would not match the file.
	req.Header.Set("Accept-Encoding", "identity")
	if t.have > 0 && t.version == "" {
		t.restart() // without a version, the server may send the rest of another file
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

// why returns the error of a request. If ctx was cancelled, it returns the
// reason for that instead of the error of net/http.
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

// begin checks the header of a response and prepares the file for the body.
func (t *transfer) begin(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK:
		t.restart()
	case http.StatusPartialContent:
		first, total, ok := contentRange(resp.Header.Get("Content-Range"))
		if !ok || first != t.have || t.size >= 0 && total >= 0 && total != t.size {
			t.restart()
			return errors.New("the server sent another part of the file than requested")
		}
		if t.differs(resp.Header) {
			t.restart()
			return errors.New("the server sent a part of another version of the file")
		}
	case http.StatusNotFound, http.StatusGone:
		return fault.New(fault.NotFound, "the server has no such file (%s)", resp.Status)
	case http.StatusRequestedRangeNotSatisfiable:
		t.restart()
		return errors.New("the server has a shorter file than before")
	default:
		return fmt.Errorf("the server answered %s", resp.Status)
	}
	if v := resp.Header.Get("ETag"); t.version == "" && v != "" && !strings.HasPrefix(v, "W/") {
		t.version = v
	} else if t.version == "" {
		t.version = resp.Header.Get("Last-Modified")
	}
	if resp.ContentLength >= 0 {
		total := t.have + resp.ContentLength
		if total > t.most {
			return t.tooLarge()
		}
		if t.size >= 0 && total != t.size && t.have > 0 {
			t.restart()
			return errors.New("the file has changed its size")
		}
		t.size = total
	}
	if t.size > 0 {
		return t.space(t.size - t.have)
	}
	return nil
}

// differs reports whether the header of a part names another version than the
// request did. A web cache that ignores If-Range may send such a part. The
// server may leave out the version (RFC 9110, 15.3.7).
func (t *transfer) differs(h http.Header) bool {
	field := "ETag"
	if _, err := http.ParseTime(t.version); err == nil {
		field = "Last-Modified"
	}
	version := h.Get(field)
	return t.version != "" && version != "" && version != t.version
}

// tooLarge returns the error for a file with more than t.most bytes.
func (t *transfer) tooLarge() error {
	return fault.New(fault.Invalid, "it has more than %d bytes, which is too much", t.most)
}

// space returns an error marked with errHopeless if n more bytes do not fit on
// the disk, because another attempt would not help.
func (t *transfer) space(n int64) error {
	if err := t.c.needSpace(n); err != nil {
		t.full = true
		return fmt.Errorf("%w (%w)", err, errHopeless)
	}
	return nil
}

func (t *transfer) restart() {
	t.have, t.version = 0, ""
	_ = t.file.Truncate(0)
	_, _ = t.file.Seek(0, io.SeekStart)
}

// asked is the number of bytes between two checks of free space. Near the end
// of a file of known size it is less. It is below spare, so that room remains
// for other files of the agent.
const asked = 8 << 20

// copy writes a body to the file until the body ends. It calls alive each time
// that bytes arrive.
func (t *transfer) copy(body io.Reader, alive func()) error {
	buf := make([]byte, 256<<10)
	o := t.c.o.Downloads
	begun, from, room := time.Now(), t.have, int64(0)
	for {
		n, err := body.Read(buf)
		t.sharing = max(t.sharing, t.c.downloads.Load())
		if n > 0 {
			alive()
			if t.have+int64(n) > t.most {
				return t.tooLarge()
			}
			// Repeat the check even if the size was known, because other
			// processes also write to the filesystem.
			if room -= int64(n); room < 0 {
				room = asked
				if t.size >= 0 {
					room = max(min(asked, t.size-t.have), int64(n))
				}
				if err := t.space(room); err != nil {
					return err
				}
			}
			if err := t.write(buf[:n]); err != nil {
				return err
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
		if time.Since(begun) >= o.Stall {
			if t.have-from < o.enough(t.sharing) {
				return fmt.Errorf("it is slower than %d KiB/s", o.Floor>>10)
			}
			begun, from, t.sharing = time.Now(), t.have, 0
		}
	}
}

// write appends the received bytes to the file.
func (t *transfer) write(b []byte) error {
	n, err := t.file.Write(b)
	t.have += int64(n)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		t.full = true
		return fmt.Errorf("cannot keep the image: %w (%w)", err, errHopeless)
	}
	if err != nil {
		return err
	}
	t.tell()
	if !t.hit {
		t.hit = true
		return failpoint.Hit(failpoint.LXDImageDownloading)
	}
	return nil
}

// tell reports the percentage if it has changed or if at most 256 KiB have
// arrived.
func (t *transfer) tell() {
	percent := -1
	if t.size > 0 {
		percent = int(min(t.have*100/t.size, 100))
	}
	if percent != t.shown || t.have <= 256<<10 {
		t.shown = percent
		t.report("downloading "+oneline.Address(t.url), percent)
	}
}
