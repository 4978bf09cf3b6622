package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// forbidden is the answer to every caller without the right, whether or not the
// requested object exists.
var forbidden = raw.NewProblem(http.StatusForbidden, fault.Forbidden, "you may not do this")

// allows reports whether a role has a right on this host.
func (s *Server) allows(r role, need right) bool {
	open := s.o.ReadersSeeConsoles
	return r.allows(need) || r == roleReader && need == rightConsole && open != nil && open()
}

// protect wraps every handler. It checks the right and the body, sets deadlines
// and logs changes, in that order.
func (s *Server) protect(rt route, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := callerFrom(r.Context())
		if !s.allows(c.role, rt.right) {
			refuse(w, r, forbidden)
			return
		}
		if rt.stream {
			if taken, _ := s.streams.take(c.share(), c.UID); !taken {
				refuse(w, r, raw.NewProblem(http.StatusTooManyRequests, fault.Transient, "too many streams are open"))
				return
			}
			defer s.streams.give(c.share(), c.UID)
		}
		rc := http.NewResponseController(w)
		body, err := readBody(r, rt, c)
		if err != nil {
			var p *client.Problem
			if !errors.As(err, &p) {
				p = raw.ProblemOf(err)
			}
			refuse(w, r, p)
			return
		}
		_ = rc.SetReadDeadline(time.Time{})
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		ctx := r.Context()
		if rt.stream {
			_ = rc.SetWriteDeadline(time.Time{})
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(s.stop, cancel)()
		} else {
			limit := max(rt.answerLimit, answerTimeout)
			_ = rc.SetWriteDeadline(time.Now().Add(limit + time.Second))
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		if rt.right != rightWorker { // a user waits for the answer
			ctx = state.Urgent(ctx)
		}
		r = r.WithContext(ctx)
		if rt.costly || rt.paged && c.share() == share(roleReader) {
			done, p := s.takePlan(ctx, c, rt.paged || parts[c.share()].waits)
			if p != nil {
				w.Header().Set("Retry-After", "1")
				refuse(w, r, p)
				return
			}
			defer done()
		}
		s.audit(rt, c, r)
		if rt.once() {
			s.replays.once(w, r, c.UID, body, next)
			return
		}
		next(w, r)
	}
}

// takePlan reserves room for a plan, the API's most costly answer, or for a page
// of events. It is called after the request's body was read, so a slow client
// holds no room.
func (s *Server) takePlan(ctx context.Context, c caller, waits bool) (done func(), p *client.Problem) {
	for {
		taken, freed := s.plans.take(c.share(), c.UID)
		switch {
		case taken:
			return func() { s.plans.give(c.share(), c.UID) }, nil
		case !waits:
			return nil, raw.NewProblem(http.StatusTooManyRequests, fault.Transient, "other plans are being made: try again in a second")
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, raw.NewProblem(http.StatusTooManyRequests, fault.Transient, "other plans are still being made: try again later")
		}
	}
}

// once reports whether a request of the route is a change that must be made
// once however often it is sent. Streams cannot be replayed, and workers'
// writes carry revisions and tokens of their own.
func (rt route) once() bool {
	return rt.right == rightChange && rt.method != http.MethodGet && !rt.stream
}

// outer wraps the route table: it sets deadlines and checks the caller's role,
// the Host header and the rate.
func (s *Server) outer(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.recovered(w, r)
		// The deadlines end requests with a missing body and answers that the
		// client does not read; protect sets the handler's own deadlines.
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(s.bodyTime))
		_ = rc.SetWriteDeadline(time.Now().Add(answerTimeout))
		c := callerFrom(r.Context())
		if c.role == roleStranger {
			refuse(w, r, forbidden)
			return
		}
		if r.Host != "hostler" && r.Host != "localhost" {
			refuse(w, r, raw.NewProblem(http.StatusMisdirectedRequest, fault.Invalid, "the host of a request here is hostler or localhost"))
			return
		}
		if !s.rates.allow(c) {
			w.Header().Set("Retry-After", "1")
			refuse(w, r, raw.NewProblem(http.StatusTooManyRequests, fault.Transient, "too many requests: try again in a second"))
			return
		}
		if p := s.unrouted(mux, r); p != nil {
			refuse(w, r, p)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// unrouted answers requests outside the route table. The mux would answer in
// plain text and redirect unclean paths.
func (s *Server) unrouted(mux *http.ServeMux, r *http.Request) *client.Problem {
	if r.Method == http.MethodHead {
		return raw.NewProblem(http.StatusMethodNotAllowed, fault.Invalid, "HEAD is not answered")
	}
	if _, pattern := mux.Handler(r); pattern != "" && r.URL.Path == cleanPath(r.URL.Path) {
		return nil
	}
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		other := *r
		other.Method = m
		if _, pattern := mux.Handler(&other); pattern != "" && m != r.Method {
			return raw.NewProblem(http.StatusMethodNotAllowed, fault.Invalid, "this path does not answer "+fault.Clip(r.Method, 16))
		}
	}
	return raw.NewProblem(http.StatusNotFound, fault.NotFound, "there is no such path")
}

// recovered turns a panic into an error answer and an error in the log.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // the value itself is meant
		panic(v)
	}
	s.log.Error("a request ended in a panic", "method", r.Method, "path", r.URL.Path,
		"panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	raw.WriteProblem(w, raw.NewProblem(http.StatusInternalServerError, fault.Transient, "the agent failed on this request; its log says more"))
}

// readBody reads the body and checks it: within the limit, JSON, no duplicate
// keys.
func readBody(r *http.Request, rt route, c caller) ([]byte, error) {
	limit := rt.body
	if limit == 0 {
		limit = maxBody
	}
	if c.role == roleReader {
		limit = min(limit, maxReaderBody)
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	var ne net.Error
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		return nil, raw.NewProblem(http.StatusRequestTimeout, fault.Transient, "the request's body did not come in time")
	case err != nil:
		return nil, fault.New(fault.Invalid, "cannot read the request's body: %v", err)
	case int64(len(b)) > limit:
		return nil, raw.NewProblem(http.StatusRequestEntityTooLarge, fault.Invalid, fmt.Sprintf("the request's body is larger than %d bytes", limit))
	case len(b) == 0:
		return nil, nil
	case rt.method == http.MethodGet:
		return nil, fault.New(fault.Invalid, "GET takes no body")
	}
	if t, params, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" || !utf8Only(params) {
		return nil, raw.NewProblem(http.StatusUnsupportedMediaType, fault.Invalid, "the body must be application/json")
	}
	return b, raw.CheckJSON(b)
}

// audit logs a change with the caller, the route and the object; never the
// body.
func (s *Server) audit(rt route, c caller, r *http.Request) {
	if rt.right == rightRead || rt.method == http.MethodGet {
		return
	}
	level := slog.LevelInfo
	if rt.quiet {
		level = slog.LevelDebug
	}
	log := s.log
	if kind, _, named := strings.Cut(strings.TrimPrefix(rt.path, "/v1/"), "s/{name}"); named {
		log = log.With("object", kind+"/"+fault.Clip(r.PathValue("name"), 64))
	}
	log.Log(r.Context(), level, "A change was requested.", "route", rt.method+" "+rt.path,
		"uid", c.UID, "gid", c.GID, "pid", c.PID, "exe", c.Exe, "change", fault.Clip(r.Header.Get(client.KeyHeader), 64))
}

// auditApply logs the declarations of an apply, whose names are in its body,
// even if the apply is refused later.
func (s *Server) auditApply(ctx context.Context, docs []declare.Document) {
	c := callerFrom(ctx)
	s.log.Info("Declarations are to be applied.", "declarations", fault.Clip(declare.Names(docs), 1024),
		"uid", c.UID, "gid", c.GID, "pid", c.PID, "exe", c.Exe)
}

// refuse answers a request whose body was not read to its end. It closes the
// connection with the answer, since the answer would otherwise wait for the
// rest of the body.
func refuse(w http.ResponseWriter, r *http.Request, p *client.Problem) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
	raw.WriteProblem(w, p)
}

// utf8Only accepts no parameter of a media type except charset=utf-8.
func utf8Only(params map[string]string) bool {
	for k, v := range params {
		if k != "charset" || !strings.EqualFold(v, "utf-8") {
			return false
		}
	}
	return true
}

func cleanPath(p string) string {
	return path.Clean("/" + p)
}
