package client

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"hostler/internal/fault"
)

// Problem is the body of every error answer. It is problem+json of RFC 9457
// with the kind of the error.
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
func (p *Problem) ContentType(string) string { return ProblemType }

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

// Fault converts the problem to an error of its kind.
func (p *Problem) Fault() error {
	kind := p.Kind
	if kind == "" {
		kind = KindOfStatus(p.Status)
	}
	text := p.Detail
	var places []string
	for _, e := range p.Errors {
		places = append(places, strings.TrimSpace(e.Location+" "+e.Message))
	}
	if len(places) > 0 {
		text += ": " + strings.Join(places, "; ")
	}
	return fault.New(kind, "%s", text)
}

// KindOfStatus returns the kind of error for an HTTP status. It is for answers
// without a kind.
func KindOfStatus(status int) fault.Kind {
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

// maxProblem bounds an error answer, in bytes.
const maxProblem = 1 << 20

// answerError turns an error answer into an error with its kind.
func answerError(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	var p Problem
	if err := json.Unmarshal(b, &p); err != nil || p.Detail == "" {
		return fault.New(KindOfStatus(resp.StatusCode), "the agent answered %s", resp.Status)
	}
	return p.Fault()
}
