package api

import (
	"bytes"
	"cmp"
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

// forbidden is the answer to a caller without the required right. It is the
// same whether or not the requested object exists.
var forbidden = raw.NewProblem(http.StatusForbidden, fault.Forbidden, "you may not do this")

// allows reports whether a role has a right under the host's configuration.
func (s *Server) allows(r role, need right) bool {
	open := s.o.ReadersSeeConsoles
	return r.allows(need) || r == roleReader && need == rightConsole && open != nil && open()
}

// protect wraps every handler. It checks the caller's right and the body, sets
// deadlines and logs changes, in this order.
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

// takePlan reserves a place for a plan, the API's most costly answer, or for a
// page of events. If none is free, it waits if waits is true, else it returns a
// problem. Call it after the request's body was read, so that a slow client
// holds no place.
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

// once reports whether requests of the route are changes with a key, which take
// effect once even if sent repeatedly. Streams cannot be replayed. Workers'
// writes carry revisions and tokens instead of a key.
func (rt route) once() bool {
	return rt.right == rightChange && rt.method != http.MethodGet && !rt.stream
}

// outer wraps the mux. It sets deadlines and checks the caller's role, the Host
// header, the rate and the path.
func (s *Server) outer(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.recovered(w, r)
		// These deadlines end requests whose body does not come and answers
		// that the client does not read. protect() sets other deadlines for the
		// handler.
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

// unrouted returns the problem of a request outside the route table, or nil for
// other requests. The mux would answer such a request in plain text or redirect
// an unclean path.
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

// recovered turns a panic into an error answer and an error in the log. It must
// be deferred.
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

// readBody reads the body and checks that it is within the limit and is JSON
// without duplicate keys.
func readBody(r *http.Request, rt route, c caller) ([]byte, error) {
	limit := cmp.Or(rt.body, maxBody)
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

// audit logs a change with the caller, the route and the object. It never logs
// the body.
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

// auditApply logs the names of the declarations of an apply, which audit()
// cannot see because they are in the body. It logs them even if the apply is
// refused later.
func (s *Server) auditApply(ctx context.Context, docs []declare.Document) {
	c := callerFrom(ctx)
	s.log.Info("Declarations are to be applied.", "declarations", fault.Clip(declare.Names(docs), 1024),
		"uid", c.UID, "gid", c.GID, "pid", c.PID, "exe", c.Exe)
}

// refuse answers a request with a problem. If the request has a body, refuse
// closes the connection, since the answer would otherwise wait for the rest of
// the body.
func refuse(w http.ResponseWriter, r *http.Request, p *client.Problem) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
	raw.WriteProblem(w, p)
}

// utf8Only reports whether a media type has no parameter except charset=utf-8.
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
