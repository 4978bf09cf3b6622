package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"hostler/agent/client"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// Helpers for raw routes, which decode their own input.

// decodeBody decodes the body, already checked by guard, into v. It refuses
// unknown fields and fields in another case.
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

// strictQuery returns the query and refuses unknown parameters.
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

// watchQuery reads the selection of events to follow.
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
	w.Header()[client.MissingHeader] = missing
	_, _ = w.Write(b)
}
