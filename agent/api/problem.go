package api

import (
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

// problemOf turns an error into a problem for the answer. An error without a
// kind counts as transient.
func problemOf(err error) *client.Problem {
	var p *client.Problem
	if errors.As(err, &p) {
		return p
	}
	kind := fault.KindOf(err)
	status := statusOf[kind]
	return newProblem(status, kind, err.Error())
}

func newProblem(status int, kind fault.Kind, detail string) *client.Problem {
	return &client.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Kind: kind}
}

// outcomeOf turns an error into an element of a bulk answer.
func outcomeOf(object string, err error) client.Outcome {
	o := client.Outcome{Object: object}
	if err != nil {
		o.Error, o.Kind = err.Error(), fault.KindOf(err)
	}
	return o
}
