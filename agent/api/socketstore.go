package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// SocketStore is the agent's store as a worker in a process of its own sees
// it, over the socket. No call is repeated: a lost answer is a transient
// error, and the worker looks again.
type SocketStore struct {
	c *Client
	// path ends with the container type.
	path string
	// patience is how long a stream may be silent.
	patience time.Duration
}

var _ state.Backend = (*SocketStore)(nil)

// NewSocketStore returns the store behind the agent's socket, restricted to
// one container type; an empty type is all of them, which only those who may
// change everything are given.
func NewSocketStore(socketPath, containerType string) *SocketStore {
	if containerType == "" {
		containerType = AllTypes
	}
	return &SocketStore{c: NewClient(socketPath), path: "/v1/worker/" + url.PathEscape(containerType) + "/", patience: silence}
}

// Close gives up idle connections. Streams end with their contexts.
func (s *SocketStore) Close() { s.c.Close() }

// Count tells the agent what the type's worker did. What the agent cannot be
// told of is counted nowhere.
func (s *SocketStore) Count(ctx context.Context, counts WorkerCounts) error {
	return s.call(ctx, http.MethodPost, "counts", nil, counts, nil)
}

// EnsureImage has the agent make an image usable for the store's container
// type; it returns the hypervisor's id of it. progress may be nil.
func (s *SocketStore) EnsureImage(ctx context.Context, reference string, progress func(message string, percent int)) (string, error) {
	img, err := s.c.imageWork(ctx, s.path+"images/ensure", ImageRequest{Reference: reference}, progress)
	return img.Digest, err
}

func (s *SocketStore) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	return s.c.call(ctx, method, s.path+path, query, in, out)
}

// results makes a call of n elements.
func (s *SocketStore) results(ctx context.Context, path string, in any, n int) ([]WorkerResult, error) {
	var out WorkerResults
	if err := s.call(ctx, http.MethodPost, path, nil, in, &out); err != nil {
		return nil, err
	}
	if len(out.Results) != n {
		return nil, fault.New(fault.Transient, "cannot read the agent's answer: %d elements for %d", len(out.Results), n)
	}
	return out.Results, nil
}

// Get returns one object.
func (s *SocketStore) Get(ctx context.Context, id state.ID) (state.Object, error) {
	results, err := s.results(ctx, "get", WorkerNames{[]state.ID{id}}, 1)
	if err != nil {
		return state.Object{}, err
	}
	return objectOf(results[0])
}

func objectOf(r WorkerResult) (state.Object, error) {
	if err := r.Err(); err != nil {
		return state.Object{}, err
	}
	if r.Object == nil {
		return state.Object{}, fault.New(fault.Transient, "cannot read the agent's answer: it lacks an object")
	}
	return *r.Object, nil
}

// List returns the objects of the kinds as of one revision.
func (s *SocketStore) List(ctx context.Context, kinds ...string) ([]state.Object, int64, error) {
	var out WorkerObjects
	err := s.call(ctx, http.MethodGet, "objects", url.Values{"kind": kinds}, nil, &out)
	return out.Objects, out.Revision, err
}

// Write makes the changes.
func (s *SocketStore) Write(ctx context.Context, mode state.Mode, writes ...state.Write) ([]state.Result, error) {
	if len(writes) == 0 {
		return []state.Result{}, nil
	}
	answers, err := s.results(ctx, "write", WorkerWrites{mode, writes}, len(writes))
	if err != nil {
		return nil, err
	}
	results := make([]state.Result, len(answers))
	for i, a := range answers {
		results[i].Object, results[i].Err = objectOf(a)
	}
	return results, nil
}

// Begin makes an intent durable.
func (s *SocketStore) Begin(ctx context.Context, in state.Intent) error {
	results, err := s.results(ctx, "intents/begin", WorkerIntents{[]state.Intent{in}}, 1)
	if err != nil {
		return err
	}
	return results[0].Err()
}

// End forgets intents.
func (s *SocketStore) End(ctx context.Context, tokens ...string) error {
	if len(tokens) == 0 {
		return nil
	}
	return s.call(ctx, http.MethodPost, "intents/end", nil, WorkerTokens{tokens}, nil)
}

// Intents returns the open ones, oldest first.
func (s *SocketStore) Intents(ctx context.Context) ([]state.Intent, error) {
	var out WorkerIntents
	err := s.call(ctx, http.MethodGet, "intents", nil, nil, &out)
	return out.Intents, err
}

// Record appends events; the error is that of the first refused one.
func (s *SocketStore) Record(ctx context.Context, events ...state.Event) error {
	if len(events) == 0 {
		return nil
	}
	results, err := s.results(ctx, "events/record", WorkerEvents{events}, len(events))
	for _, r := range results {
		if err == nil {
			err = r.Err()
		}
	}
	return err
}

// Events returns the events that the query selects.
func (s *SocketStore) Events(ctx context.Context, q state.EventQuery) ([]state.Event, error) {
	query := url.Values{"after": {strconv.FormatInt(q.After, 10)}, "limit": {strconv.Itoa(q.Limit)}}
	if q.Object != nil {
		query.Set("kind", q.Object.Kind)
		query.Set("name", q.Object.Name)
	}
	var out WorkerEvents
	err := s.call(ctx, http.MethodGet, "events", query, nil, &out)
	return out.Events, err
}

// Config returns the host's configuration; fault.NotReady before it was read.
func (s *SocketStore) Config(ctx context.Context) (spec.Config, error) {
	var out spec.Config
	return out, s.call(ctx, http.MethodGet, "config", nil, nil, &out)
}

// Supported returns the container types that the host is known to run.
func (s *SocketStore) Supported(ctx context.Context) ([]spec.ContainerType, error) {
	var out WorkerTypes
	err := s.call(ctx, http.MethodGet, "supported", nil, nil, &out)
	return out.Types, err
}

// SetSupported declares the container types that the host can run: those that
// are not named it cannot. There is one error per type named.
func (s *SocketStore) SetSupported(ctx context.Context, types ...spec.ContainerType) ([]error, error) {
	if types == nil {
		types = []spec.ContainerType{}
	}
	results, err := s.results(ctx, "supported", WorkerTypes{types}, len(types))
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(results))
	for i, r := range results {
		errs[i] = r.Err()
	}
	return errs, nil
}

// Transient returns the machines without an instance whose last error may go
// away by itself.
func (s *SocketStore) Transient(ctx context.Context) ([]TransientMachine, error) {
	var out TransientMachines
	err := s.call(ctx, http.MethodGet, "transient", nil, nil, &out)
	return out.Machines, err
}

// Keep says of each machine whether its instance survives its record.
func (s *SocketStore) Keep(ctx context.Context, machines ...string) ([]WorkerMachine, error) {
	return s.machines(ctx, "keep", machines)
}

// HostChanges says of each machine which host networks it needs that are not
// there. Nothing is changed.
func (s *SocketStore) HostChanges(ctx context.Context, machines ...string) ([]WorkerMachine, error) {
	return s.machines(ctx, "host-changes", machines)
}

func (s *SocketStore) machines(ctx context.Context, path string, names []string) ([]WorkerMachine, error) {
	var out WorkerMachineAnswers
	err := s.call(ctx, http.MethodPost, path, nil, WorkerMachines{names}, &out)
	return out.Machines, err
}

// Err is the error about one machine, nil if there is none.
func (m WorkerMachine) Err() error { return elementError(m.Error, m.Kind) }
