package api

import (
	"net/http"
	"strconv"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// watchQuery reads the query of events to follow from a request.
func watchQuery(r *http.Request) (state.EventQuery, error) {
	q, err := raw.Query(r, "after", "object")
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
	q, err := raw.Query(r, "declaration")
	var b []byte
	var missing []string
	if err == nil {
		b, missing, err = s.o.Service.Exporter.Export(r.Context(), fault.Clip(q.Get("declaration"), 64))
	}
	if err != nil {
		raw.WriteProblem(w, raw.ProblemOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header()[client.MissingHeader] = missing
	_, _ = w.Write(b)
}
