package api

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// lineTimeout bounds the write of a line to a client that does not read.
const lineTimeout = 30 * time.Second

// lines is an answer with a JSON value per line. It is not safe for concurrent
// use.
type lines struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	open bool
}

func newLines(w http.ResponseWriter) *lines {
	return &lines{w: w, rc: http.NewResponseController(w)}
}

// send writes a line and flushes it.
func (l *lines) send(m any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if !l.open {
		l.open = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	_ = l.rc.SetWriteDeadline(time.Now().Add(lineTimeout))
	if _, err := l.w.Write(append(b, '\n')); err != nil {
		return err
	}
	return l.rc.Flush()
}

// fail ends the stream: with an ordinary error answer before the first line,
// afterwards with a last line.
func (l *lines) fail(err error) {
	p := problemOf(err)
	if !l.open {
		writeProblem(l.w, p)
		return
	}
	_ = l.send(client.Line{Problem: p})
}

// errLost ends a stream whose source broke off; the client starts again.
var errLost = fault.New(fault.Transient, "the watch was lost")

// errStopping ends the streams of an agent that stops.
var errStopping = fault.New(fault.Transient, "the agent is stopping")

// ended returns why a stream ends with its context.
func (s *Server) ended() error {
	if s.stop.Err() != nil {
		return errStopping
	}
	return errLost
}

func (s *Server) watchMachines(w http.ResponseWriter, r *http.Request) {
	l := newLines(w)
	q, err := strictQuery(r, "name")
	if err != nil {
		l.fail(err)
		return
	}
	changes, err := s.o.Backend.Watch(r.Context(), spec.KindMachine)
	if err != nil {
		l.fail(err)
		return
	}
	var last []client.Machine
	look := func([]state.ID) error {
		rows, err := s.presentRows(r.Context(), q["name"])
		if err != nil || l.open && reflect.DeepEqual(rows, last) {
			return err
		}
		last = rows
		return l.send(client.Line{Machines: &rows})
	}
	if err := look(nil); err != nil {
		l.fail(err)
		return
	}
	follow(r.Context(), s, l, changes, lookPause, look)
}

func (s *Server) watchEvents(w http.ResponseWriter, r *http.Request) {
	l := newLines(w)
	q, err := watchQuery(r)
	if err != nil {
		l.fail(err)
		return
	}
	signals, err := s.o.Backend.WatchEvents(r.Context())
	if err != nil {
		l.fail(err)
		return
	}
	look := func(struct{}) error { return s.sendEvents(r.Context(), l, &q) }
	if err := l.send(client.Line{}); err != nil {
		return
	}
	if err := look(struct{}{}); err != nil {
		l.fail(err)
		return
	}
	follow(r.Context(), s, l, signals, 0, look)
}

// sendEvents sends all events after q.After and advances it.
func (s *Server) sendEvents(ctx context.Context, l *lines, q *state.EventQuery) error {
	for {
		events, err := s.o.Backend.Events(ctx, *q)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			row := eventRow(e)
			if err := l.send(client.Line{Event: &row}); err != nil {
				return err
			}
			q.After = e.Seq
		}
	}
}

// lookPause is the minimum time between two readings of all machines: while a
// hundred machines are created, they change many hundred times.
const lookPause = 100 * time.Millisecond

// follow calls look for every change, at least pause apart, and sends
// heartbeats, until the client disconnects, the agent stops or the source is
// lost.
func follow[T any](ctx context.Context, s *Server, l *lines, changes <-chan T, pause time.Duration, look func(T) error) {
	beat := time.NewTicker(s.o.Heartbeat)
	defer beat.Stop()
	looked := time.Now()
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
			// The watch coalesces changes during the pause.
			if rest := pause - time.Since(looked); rest > 0 && !wait(ctx, rest) {
				err = s.ended()
				break
			}
			err, looked = look(change), time.Now()
		case <-beat.C:
			err = l.send(client.Line{})
		}
		if err != nil {
			l.fail(err)
			return
		}
	}
}

// wait returns false when ctx ends first.
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

func (s *Server) importImage(w http.ResponseWriter, r *http.Request) {
	var req client.ImageImportRequest
	s.imageWork(w, r, &req, func(ctx context.Context, report func(client.Progress)) (client.Image, error) {
		if len(req.Path) == 0 || req.Path[0] != '/' || req.Reference == "" {
			return client.Image{}, fault.New(fault.Invalid, "cannot import an image: an absolute path and a reference are needed")
		}
		return s.o.Service.Builder.Import(ctx, req.Path, req.Reference, req.Digest, report)
	})
}

func (s *Server) buildImage(w http.ResponseWriter, r *http.Request) {
	var req client.ImageBuildRequest
	s.imageWork(w, r, &req, func(ctx context.Context, report func(client.Progress)) (client.Image, error) {
		switch {
		case req.Reference == "":
			return client.Image{}, fault.New(fault.Invalid, "cannot build an image: a reference is needed")
		case req.Type == "":
			req.Type = spec.LXD
		case req.Type != spec.LXD && req.Type != spec.KVM:
			return client.Image{}, fault.New(fault.Invalid, "cannot build an image for type %q: it is neither lxd nor kvm", clip(string(req.Type), 32))
		}
		return s.o.Service.Builder.Build(ctx, req.Type, req.Reference, report)
	})
}

// imageWork runs a long operation on an image and sends its progress. It drops
// reports that arrive faster than the client reads: the operation must not wait
// for a terminal.
func (s *Server) imageWork(w http.ResponseWriter, r *http.Request, req any, work func(context.Context, func(client.Progress)) (client.Image, error)) {
	l := newLines(w)
	if err := decodeBody(r, req); err != nil {
		l.fail(err)
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
	beat := time.NewTicker(s.o.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case p := <-reports:
			_ = l.send(client.Line{Progress: &p})
		case <-beat.C:
			_ = l.send(client.Line{})
		case res := <-done:
			for len(reports) > 0 {
				p := <-reports
				_ = l.send(client.Line{Progress: &p})
			}
			if res.err != nil {
				l.fail(res.err)
				return
			}
			s.imageCame(r.Context(), res.img.Reference)
			_ = l.send(client.Line{Image: &res.img, Done: true})
			return
		}
	}
}
