package api

import (
	"errors"
	"net/http"

	"hostler/internal/fault"
)

// Problem is the body of every error answer: problem+json of RFC 9457 with the
// kind of the error.
type Problem struct {
	Type   string     `json:"type"`
	Title  string     `json:"title"`
	Status int        `json:"status"`
	Detail string     `json:"detail"`
	Kind   fault.Kind `json:"kind"`
	// Errors names the invalid places in the request.
	Errors []ProblemDetail `json:"errors,omitempty"`
}

// ProblemDetail is an invalid place in a request.
type ProblemDetail struct {
	Message  string `json:"message"`
	Location string `json:"location,omitempty"`
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the type for the answer's header.
func (p *Problem) ContentType(string) string { return problemType }

const problemType = "application/problem+json"

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
func problemOf(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	kind := fault.KindOf(err)
	status := statusOf[kind]
	return newProblem(status, kind, err.Error())
}

func newProblem(status int, kind fault.Kind, detail string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Kind: kind}
}

// kindOfStatus returns the kind for an HTTP status, for answers without a kind.
func kindOfStatus(status int) fault.Kind {
	switch {
	case status == http.StatusNotFound:
		return fault.NotFound
	case status == http.StatusForbidden:
		return fault.Forbidden
	case status == http.StatusConflict:
		return fault.Conflict
	case status == http.StatusTooManyRequests, status >= 500:
		return fault.Transient
	default:
		return fault.Invalid
	}
}

// outcomeOf turns an error into an element of a bulk answer.
func outcomeOf(object string, err error) Outcome {
	o := Outcome{Object: object}
	if err != nil {
		o.Error, o.Kind = err.Error(), fault.KindOf(err)
	}
	return o
}
