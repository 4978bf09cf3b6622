package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// What workers and the agent send each other under /v1/worker/{type}. Every
// call takes many elements and answers in the order asked, each element with
// an error of its own.

// AllTypes in the place of the container type is the whole store, for workers
// that serve no single type.
const AllTypes = "all"

// WorkerObjects answers a list: all objects as of one revision.
type WorkerObjects struct {
	Revision int64          `json:"revision"`
	Objects  []state.Object `json:"objects"`
}

// WorkerNames names objects of kinds.
type WorkerNames struct {
	IDs []state.ID `json:"ids"`
}

// WorkerWrites is one call of Store.Write.
type WorkerWrites struct {
	Mode   state.Mode    `json:"mode"`
	Writes []state.Write `json:"writes"`
}

// WorkerResult is one element of an answer; Object is absent on an error.
type WorkerResult struct {
	Object *state.Object `json:"object,omitempty"`
	Error  string        `json:"error,omitempty"`
	Kind   fault.Kind    `json:"kind,omitempty"`
}

// WorkerResults answers calls whose elements are objects or nothing.
type WorkerResults struct {
	Results []WorkerResult `json:"results"`
}

// WorkerIntents carries intents, either way.
type WorkerIntents struct {
	Intents []state.Intent `json:"intents"`
}

// WorkerTokens names intents to end.
type WorkerTokens struct {
	Tokens []string `json:"tokens"`
}

// WorkerEvents carries events, either way.
type WorkerEvents struct {
	Events []state.Event `json:"events"`
}

// WorkerTypes declares which container types the host can run.
type WorkerTypes struct {
	Types []spec.ContainerType `json:"types"`
}

// WorkerMachines names machines.
type WorkerMachines struct {
	Machines []string `json:"machines"`
}

// WorkerMachine is what the facade answers about one machine.
type WorkerMachine struct {
	Name string `json:"name"`
	// Keep: the instance survives its record.
	Keep bool `json:"keep,omitempty"`
	// Networks are the host networks that its NICs need and that are not
	// there yet.
	Networks []string   `json:"networks,omitempty"`
	Error    string     `json:"error,omitempty"`
	Kind     fault.Kind `json:"kind,omitempty"`
}

// WorkerMachineAnswers holds one answer per machine asked.
type WorkerMachineAnswers struct {
	Machines []WorkerMachine `json:"machines"`
}

// TransientMachine is a machine whose last error may go away by itself.
type TransientMachine struct {
	Name      string     `json:"name"`
	Message   string     `json:"message"`
	Attempts  int        `json:"attempts"`
	NextRetry *time.Time `json:"next-retry"`
}

// TransientMachines answers which machines to try again.
type TransientMachines struct {
	Machines []TransientMachine `json:"machines"`
}

// WorkerCounts are the passes and operations of a worker since it last told of
// them, at most MaxCounts of each.
type WorkerCounts struct {
	Passes     []WorkerCount `json:"passes"`
	Operations []WorkerCount `json:"operations"`
}

// MaxCounts bounds what is told at once.
const MaxCounts = 1000

// WorkerCount is one pass or operation.
type WorkerCount struct {
	// Action is empty for a pass.
	Action  string  `json:"action,omitempty"`
	Seconds float64 `json:"seconds"`
	Failed  bool    `json:"failed,omitempty"`
}

// workerLine is one line of a worker's stream. A line without any field is a
// heartbeat. IDs is a pointer so that an empty batch is told from none.
type workerLine struct {
	IDs     *[]state.ID `json:"ids,omitempty"`
	Events  bool        `json:"events,omitempty"`
	Problem *Problem    `json:"problem,omitempty"`
}

func resultOf(o state.Object, err error) WorkerResult {
	if err != nil {
		return WorkerResult{Error: err.Error(), Kind: fault.KindOf(err)}
	}
	return WorkerResult{Object: &o}
}

// Err is the element's error with its kind, nil if it went well.
func (r WorkerResult) Err() error { return elementError(r.Error, r.Kind) }

func elementError(text string, kind fault.Kind) error {
	if text == "" && kind == "" {
		return nil
	}
	return fault.New(kind, "%s", text)
}

// encode is JSON that leaves <, > and & as they are: what is kept in the store
// passes through unchanged.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

func answer(w http.ResponseWriter, v any) {
	b, err := encode(v)
	if err != nil {
		writeProblem(w, problemOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// notFound is the same for what is not there and for what a worker may not
// see, and the same as the store's own.
func notFound(id state.ID) error {
	return fault.New(fault.NotFound, "cannot find %s/%s", clip(id.Kind, 64), clip(strings.ToValidUTF8(id.Name, "\uFFFD"), 256))
}
