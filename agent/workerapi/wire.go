package workerapi

import (
	"net/http"
	"strings"
	"time"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// The messages between workers and the agent under /v1/worker/{type}. Every
// call takes many elements and answers in the same order, each element with an
// error of its own.

// AllTypes in place of the container type selects the whole store, for workers
// that do not serve a single type.
const AllTypes = "all"

// WorkerObjects is the answer to a list: all objects as of a single revision.
type Objects struct {
	Revision int64          `json:"revision"`
	Objects  []state.Object `json:"objects"`
}

// WorkerNames names objects by kind and name.
type Names struct {
	IDs []state.ID `json:"ids"`
}

// WorkerWrites is a call of Store.Write.
type Writes struct {
	Mode   state.Mode    `json:"mode"`
	Writes []state.Write `json:"writes"`
}

// WorkerResult is an element of an answer; Object is absent on an error.
type Result struct {
	Object *state.Object `json:"object,omitempty"`
	Error  string        `json:"error,omitempty"`
	Kind   fault.Kind    `json:"kind,omitempty"`
}

// WorkerResults is the answer to calls whose elements return an object or
// nothing.
type Results struct {
	Results []Result `json:"results"`
}

// WorkerIntents carries intents in either direction.
type Intents struct {
	Intents []state.Intent `json:"intents"`
}

// WorkerTokens names intents to end.
type Tokens struct {
	Tokens []string `json:"tokens"`
}

// WorkerEvents carries events in either direction.
type Events struct {
	Events []state.Event `json:"events"`
}

// WorkerTypes names the container types that the host can run.
type Types struct {
	Types []spec.ContainerType `json:"types"`
}

// WorkerMachines names machines.
type Machines struct {
	Machines []string `json:"machines"`
}

// WorkerMachine is the facade's answer about a machine.
type Machine struct {
	Name string `json:"name"`
	// Keep: the instance survives the removal of its record.
	Keep bool `json:"keep,omitempty"`
	// Networks are the missing host networks that its NICs need.
	Networks []string   `json:"networks,omitempty"`
	Error    string     `json:"error,omitempty"`
	Kind     fault.Kind `json:"kind,omitempty"`
}

// WorkerMachineAnswers holds an answer per requested machine.
type MachineAnswers struct {
	Machines []Machine `json:"machines"`
}

// TransientMachine is a machine whose last error is transient.
type TransientMachine struct {
	Name      string     `json:"name"`
	Message   string     `json:"message"`
	Attempts  int        `json:"attempts"`
	NextRetry *time.Time `json:"next-retry"`
}

// TransientMachines names the machines to try again.
type TransientMachines struct {
	Machines []TransientMachine `json:"machines"`
}

// WorkerCounts are the passes and operations of a worker since its last call,
// at most MaxCounts of each.
type Counts struct {
	Passes     []Count `json:"passes"`
	Operations []Count `json:"operations"`
}

// MaxCounts bounds the passes, and the operations, of a call.
const MaxCounts = 1000

// WorkerCount is a pass or operation.
type Count struct {
	// Action is empty for a pass.
	Action  string  `json:"action,omitempty"`
	Seconds float64 `json:"seconds"`
	Failed  bool    `json:"failed,omitempty"`
}

// workerLine is a line of a worker's stream. A line without any field is a
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
func (r Result) Err() error { return elementError(r.Error, r.Kind) }

func elementError(text string, kind fault.Kind) error {
	if text == "" && kind == "" {
		return nil
	}
	return fault.New(kind, "%s", text)
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
	return fault.New(fault.NotFound, "cannot find %s/%s", raw.Clip(id.Kind, 64), raw.Clip(strings.ToValidUTF8(id.Name, "\uFFFD"), 256))
}
