// Package raw helps handlers that read requests and write answers without huma.
// It reads bodies and queries strictly, and writes problems and streams of
// lines.
package raw

import (
	"encoding/json"
	"errors"
	"net/http"

	"hostler/agent/client"
	"hostler/internal/fault"
)

// statusOf maps each kind to its HTTP status.
var statusOf = map[fault.Kind]int{
	fault.Transient:     http.StatusServiceUnavailable,
	fault.NeedsOperator: http.StatusConflict,
	fault.Invalid:       http.StatusBadRequest,
	fault.Conflict:      http.StatusConflict,
	fault.NotFound:      http.StatusNotFound,
	fault.NotReady:      http.StatusConflict,
	fault.Forbidden:     http.StatusForbidden,
}

// ProblemOf turns an error into a problem for the answer. An error without a
// kind counts as transient.
func ProblemOf(err error) *client.Problem {
	var p *client.Problem
	if errors.As(err, &p) {
		return p
	}
	kind := fault.KindOf(err)
	status := statusOf[kind]
	return NewProblem(status, kind, err.Error())
}

// NewProblem returns a problem with the title of its HTTP status.
func NewProblem(status int, kind fault.Kind, detail string) *client.Problem {
	return &client.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Kind: kind}
}

// WriteProblem answers with a problem.
func WriteProblem(w http.ResponseWriter, p *client.Problem) {
	b, err := json.Marshal(p)
	if err != nil {
		panic("api: cannot encode a problem: " + err.Error())
	}
	w.Header().Set("Content-Type", client.ProblemType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(b, '\n'))
}
