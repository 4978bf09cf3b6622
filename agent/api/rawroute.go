package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"hostler/agent/state"
	"hostler/internal/fault"
)

// Helpers for routes that answer by themselves and so read their own input.

// decodeBody reads the body, which the guard has judged, into v; unknown
// fields are refused, and those of another case.
func decodeBody(r *http.Request, v any) error {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return fault.New(fault.Invalid, "cannot read the request's body: %v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fault.New(fault.Invalid, "cannot read the request's body: %v", err)
	}
	if err := checkKeys(b, v); err != nil {
		return fault.New(fault.Invalid, "cannot read the request's body: %v", err)
	}
	return nil
}

// strictQuery returns the query and refuses parameters that are not known.
func strictQuery(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot read the query: %v", err)
	}
next:
	for k := range q {
		for _, want := range known {
			if k == want {
				continue next
			}
		}
		return nil, fault.New(fault.Invalid, "unknown query parameter %q", clip(k, 32))
	}
	return q, nil
}

// watchQuery reads which events to follow.
func watchQuery(r *http.Request) (state.EventQuery, error) {
	q, err := strictQuery(r, "after", "object")
	if err != nil {
		return state.EventQuery{}, err
	}
	var after int64
	if text := q.Get("after"); text != "" {
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after < 0 {
			return state.EventQuery{}, fault.New(fault.Invalid, "the query parameter after is not a number")
		}
	}
	return eventsQuery{After: after, Object: q.Get("object")}.query(), nil
}

// missingHeader says, once for each, what an answer lacks because it could not
// be read.
const missingHeader = "Hostler-Missing"

func (s *Server) export(w http.ResponseWriter, r *http.Request) {
	q, err := strictQuery(r, "declaration")
	var b []byte
	var missing []string
	if err == nil {
		b, missing, err = s.o.Service.Exporter.Export(r.Context(), clip(q.Get("declaration"), 64))
	}
	if err != nil {
		writeProblem(w, problemOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header()[missingHeader] = missing
	_, _ = w.Write(b)
}
