package workerapi

import (
	"net/http"
	"strings"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// This file holds the messages between workers and the agent under
// /v1/worker/{type}. A call takes many elements. The answer has a result or an
// error for each element, in the same order.

// allTypes in place of the container type selects the whole store, for workers
// that do not serve a single type.
const allTypes = "all"

// objectList is the answer to a list. It shows all objects as they were at
// Revision.
type objectList struct {
	Revision int64          `json:"revision"`
	Objects  []state.Object `json:"objects"`
}

// Names names objects by kind and name.
type Names struct {
	IDs []state.ID `json:"ids"`
}

// Writes is the body of a call of Store.Write.
type Writes struct {
	Mode   state.Mode    `json:"mode"`
	Writes []state.Write `json:"writes"`
}

// Result is an element of an answer. Object is nil if the element has an error.
type Result struct {
	Object *state.Object `json:"object,omitempty"`
	Error  string        `json:"error,omitempty"`
	Kind   fault.Kind    `json:"kind,omitempty"`
}

// Results is the answer to a call. Its elements hold an object, an error or
// nothing.
type Results struct {
	Results []Result `json:"results"`
}

// Intents carries intents in either direction.
type Intents struct {
	Intents []state.Intent `json:"intents"`
}

// tokenList names intents to end.
type tokenList struct {
	Tokens []string `json:"tokens"`
}

// workerEvents carries events in either direction.
type workerEvents struct {
	Events []state.Event `json:"events"`
}

// Counts are the passes and operations of a worker since its last call,
// at most MaxCounts of each.
type Counts struct {
	Passes     []Count `json:"passes"`
	Operations []Count `json:"operations"`
}

// MaxCounts bounds the passes of a call and likewise its operations.
const MaxCounts = 1000

// Count is a pass or operation.
type Count struct {
	// Action is empty for a pass.
	Action  string  `json:"action,omitempty"`
	Seconds float64 `json:"seconds"`
	Failed  bool    `json:"failed,omitempty"`
}

// line is a line of a worker's stream. A line without any field is a heartbeat.
// IDs is a pointer, so that an empty batch of ids differs from a line without
// ids.
type line struct {
	IDs     *[]state.ID     `json:"ids,omitempty"`
	Events  bool            `json:"events,omitempty"`
	Problem *client.Problem `json:"problem,omitempty"`
}

func resultOf(o state.Object, err error) Result {
	if err != nil {
		return Result{Error: err.Error(), Kind: fault.KindOf(err)}
	}
	return Result{Object: &o}
}

// Err returns the element's error with its kind, or nil if it has none.
func (r Result) Err() error {
	if r.Error == "" && r.Kind == "" {
		return nil
	}
	return fault.New(r.Kind, "%s", r.Error)
}

func answer(w http.ResponseWriter, v any) {
	b, err := client.Encode(v)
	if err != nil {
		raw.WriteProblem(w, raw.ProblemOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// notFound returns the error for absent objects and for objects that the worker
// has no permission to see. The store returns the same error for absent
// objects.
func notFound(id state.ID) error {
	return fault.New(fault.NotFound, "cannot find %s/%s", fault.Clip(id.Kind, 64), fault.Clip(strings.ToValidUTF8(id.Name, "\uFFFD"), 256))
}
