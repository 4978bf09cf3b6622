package workerapi

import (
	"net/http"
	"strings"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// The messages between workers and the agent under /v1/worker/{type}. Every
// call takes many elements and answers in the same order, each element with an
// error of its own.

// AllTypes in place of the container type selects the whole store, for workers
// that do not serve a single type.
const AllTypes = "all"

// Objects is the answer to a list: all objects as of a single revision.
type Objects struct {
	Revision int64          `json:"revision"`
	Objects  []state.Object `json:"objects"`
}

// Names names objects by kind and name.
type Names struct {
	IDs []state.ID `json:"ids"`
}

// Writes is a call of Store.Write.
type Writes struct {
	Mode   state.Mode    `json:"mode"`
	Writes []state.Write `json:"writes"`
}

// Result is an element of an answer; Object is absent on an error.
type Result struct {
	Object *state.Object `json:"object,omitempty"`
	Error  string        `json:"error,omitempty"`
	Kind   fault.Kind    `json:"kind,omitempty"`
}

// Results is the answer to calls whose elements return an object or
// nothing.
type Results struct {
	Results []Result `json:"results"`
}

// Intents carries intents in either direction.
type Intents struct {
	Intents []state.Intent `json:"intents"`
}

// Tokens names intents to end.
type Tokens struct {
	Tokens []string `json:"tokens"`
}

// Events carries events in either direction.
type Events struct {
	Events []state.Event `json:"events"`
}

// Counts are the passes and operations of a worker since its last call,
// at most MaxCounts of each.
type Counts struct {
	Passes     []Count `json:"passes"`
	Operations []Count `json:"operations"`
}

// MaxCounts bounds the passes, and the operations, of a call.
const MaxCounts = 1000

// Count is a pass or operation.
type Count struct {
	// Action is empty for a pass.
	Action  string  `json:"action,omitempty"`
	Seconds float64 `json:"seconds"`
	Failed  bool    `json:"failed,omitempty"`
}

// line is a line of a worker's stream. A line without any field is a
// heartbeat. IDs is a pointer so that an empty batch differs from no batch.
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

// Err returns the element's error with its kind, nil on success.
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

// notFound returns the same error for absent objects and for objects that the
// worker may not see, equal to the store's own error.
func notFound(id state.ID) error {
	return fault.New(fault.NotFound, "cannot find %s/%s", fault.Clip(id.Kind, 64), fault.Clip(strings.ToValidUTF8(id.Name, "\uFFFD"), 256))
}
