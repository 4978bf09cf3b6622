package raw

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"hostler/agent/client"
	"hostler/internal/fault"
)

// LineTimeout bounds the write of a line, because a client may not read.
const LineTimeout = 30 * time.Second

// Lines is an answer that consists of JSON values, one per line. It is not safe
// for concurrent use.
type Lines struct {
	w  http.ResponseWriter
	rc *http.ResponseController
	// Begun is true if a line was sent.
	Begun bool
}

// NewLines returns an answer without lines yet.
func NewLines(w http.ResponseWriter) *Lines {
	return &Lines{w: w, rc: http.NewResponseController(w)}
}

// Send writes a line and flushes it.
func (l *Lines) Send(m any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if !l.Begun {
		l.Begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	_ = l.rc.SetWriteDeadline(time.Now().Add(LineTimeout))
	if _, err := l.w.Write(append(b, '\n')); err != nil {
		return err
	}
	return l.rc.Flush()
}

// Fail ends the stream with an error. Before the first line it sends an
// ordinary error answer, afterwards a last line with the problem.
func (l *Lines) Fail(err error) {
	p := ProblemOf(err)
	if !l.Begun {
		WriteProblem(l.w, p)
		return
	}
	_ = l.Send(client.Line{Problem: p})
}

// errLost ends a stream whose source is lost. The client can call again.
var errLost = fault.New(fault.Transient, "the watch was lost")

// errStopping ends the streams of an agent that stops.
var errStopping = fault.New(fault.Transient, "the agent is stopping")

// Streams holds the settings of streams, i.e. of answers that last.
type Streams struct {
	// Heartbeat is the pause between two lines of an idle stream.
	Heartbeat time.Duration
	// Stop ends when the agent stops.
	Stop context.Context //nolint:containedctx // the server's life, not a call's
}

// ended returns the error with which a stream ends.
func (s Streams) ended() error {
	if s.Stop.Err() != nil {
		return errStopping
	}
	return errLost
}

// lookShare times the duration of a look is the pause after it, up to longestPause, so
// that the looks and the client's work with what they send leave the host most of its
// time.
const (
	lookShare    = 20
	longestPause = 2 * time.Second
)

// Follow calls look for every change, at least pause apart, and sends
// heartbeats, until the client disconnects, the agent stops or the source is
// lost. If pause is not zero, a slow look is followed by a longer pause.
func Follow[T any](ctx context.Context, s Streams, l *Lines, changes <-chan T, pause time.Duration, look func(T) error) {
	beat := time.NewTicker(s.Heartbeat)
	defer beat.Stop()
	looked, due := time.Now(), pause
	for {
		var err error
		select {
		case <-ctx.Done():
			err = s.ended()
		case change, ok := <-changes:
			if !ok {
				err = s.ended()
				break
			}
			// The watch joins the changes during the pause into one.
			if rest := due - time.Since(looked); rest > 0 && !wait(ctx, rest) {
				err = s.ended()
				break
			}
			began := time.Now()
			err, looked = look(change), time.Now()
			if pause > 0 {
				due = max(pause, min(lookShare*looked.Sub(began), longestPause))
			}
		case <-beat.C:
			err = l.Send(client.Line{})
		}
		if err != nil {
			l.Fail(err)
			return
		}
	}
}

// wait waits for d. It returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// ImageWork runs a long operation on an image and sends its progress. It drops
// reports that come faster than the client reads, because the operation must
// not wait for the client.
func (s Streams) ImageWork(w http.ResponseWriter, r *http.Request, req any, work func(context.Context, func(client.Progress)) (client.Image, error)) {
	l := NewLines(w)
	if err := Decode(r, req); err != nil {
		l.Fail(err)
		return
	}
	type result struct {
		img client.Image
		err error
	}
	reports := make(chan client.Progress, 16)
	done := make(chan result, 1)
	go func() {
		img, err := work(r.Context(), func(p client.Progress) {
			select {
			case reports <- p:
			default:
			}
		})
		done <- result{img, err}
	}()
	beat := time.NewTicker(s.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case p := <-reports:
			_ = l.Send(client.Line{Progress: &p})
		case <-beat.C:
			_ = l.Send(client.Line{})
		case res := <-done:
			for len(reports) > 0 {
				p := <-reports
				_ = l.Send(client.Line{Progress: &p})
			}
			if res.err != nil {
				l.Fail(res.err)
				return
			}
			_ = l.Send(client.Line{Image: &res.img, Done: true})
			return
		}
	}
}
