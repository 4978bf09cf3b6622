// Package workerapi gives workers in separate processes access to the agent's
// store. Store is the worker's side of the socket. Handlers answer in the agent
// and show each worker only the objects of its container type.
package workerapi

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"hostler/agent/client"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// Store is the agent's store for a worker in a separate process, which calls
// the agent over the socket. Store repeats no call. If an answer is lost, the
// call fails with a transient error and the worker reads the store again.
type Store struct {
	c *client.Client
	// path ends with the container type.
	path string
	// silenceLimit is the longest time without a line before a stream counts as
	// lost.
	silenceLimit time.Duration
}

var _ state.Backend = (*Store)(nil)

// MaxCalls and MaxStreams bound the connections of a worker's process. Watches
// and image work last long, so they use separate connections and keep no call
// waiting. The sum is below the agent's limit for a uid, so that calls wait for
// each other instead of being refused. MaxStreams is above the agent's limit on
// streams, because a refused stream ends at once.
const (
	MaxCalls   = 16
	MaxStreams = 32
)

// NewStore returns the store behind the agent's socket, restricted to a
// container type. An empty type means the whole store, for which only admins
// have permission.
func NewStore(socketPath, containerType string) *Store {
	containerType = cmp.Or(containerType, allTypes)
	return &Store{
		c:    client.NewBounded(socketPath, MaxCalls, MaxStreams),
		path: "/v1/worker/" + url.PathEscape(containerType) + "/", silenceLimit: silence,
	}
}

// Close closes idle connections. Streams end with their contexts.
func (s *Store) Close() { s.c.Close() }

// Count sends the worker's counts to the agent, which adds them to its metrics.
// It does not send the counts of a failed call again.
func (s *Store) Count(ctx context.Context, counts Counts) error {
	return s.call(ctx, http.MethodPost, "counts", nil, counts, nil)
}

// EnsureImage makes the agent prepare an image for the store's container type.
// It returns the image's id in the hypervisor. progress may be nil.
func (s *Store) EnsureImage(ctx context.Context, reference string, progress func(message string, percent int)) (string, error) {
	img, err := s.c.ImageWork(ctx, s.path+"images/ensure", client.ImageRequest{Reference: reference}, progress)
	return img.Digest, err
}

func (s *Store) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	return s.c.Call(ctx, method, s.path+path, query, in, out)
}

// results makes a call with n elements and returns their n results.
func (s *Store) results(ctx context.Context, path string, in any, n int) ([]Result, error) {
	var out Results
	if err := s.call(ctx, http.MethodPost, path, nil, in, &out); err != nil {
		return nil, err
	}
	if len(out.Results) != n {
		return nil, fault.New(fault.Transient, "cannot read the agent's answer: %d elements for %d", len(out.Results), n)
	}
	return out.Results, nil
}

// Get returns one object.
func (s *Store) Get(ctx context.Context, id state.ID) (state.Object, error) {
	results, err := s.results(ctx, "get", Names{[]state.ID{id}}, 1)
	if err != nil {
		return state.Object{}, err
	}
	return objectOf(results[0])
}

func objectOf(r Result) (state.Object, error) {
	if err := r.Err(); err != nil {
		return state.Object{}, err
	}
	if r.Object == nil {
		return state.Object{}, fault.New(fault.Transient, "cannot read the agent's answer: it lacks an object")
	}
	return *r.Object, nil
}

// List returns the objects of the kinds, all as they were at the returned
// revision.
func (s *Store) List(ctx context.Context, kinds ...string) ([]state.Object, int64, error) {
	var out objectList
	err := s.call(ctx, http.MethodGet, "objects", url.Values{"kind": kinds}, nil, &out)
	return out.Objects, out.Revision, err
}

// Write makes the changes.
func (s *Store) Write(ctx context.Context, mode state.Mode, writes ...state.Write) ([]state.Result, error) {
	if len(writes) == 0 {
		return []state.Result{}, nil
	}
	answers, err := s.results(ctx, "write", Writes{mode, writes}, len(writes))
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
func (s *Store) Begin(ctx context.Context, in state.Intent) error {
	results, err := s.results(ctx, "intents/begin", Intents{[]state.Intent{in}}, 1)
	if err != nil {
		return err
	}
	return results[0].Err()
}

// End removes intents.
func (s *Store) End(ctx context.Context, tokens ...string) error {
	if len(tokens) == 0 {
		return nil
	}
	return s.call(ctx, http.MethodPost, "intents/end", nil, tokenList{tokens}, nil)
}

// Sync makes all earlier changes durable.
func (s *Store) Sync(ctx context.Context) error {
	return s.call(ctx, http.MethodPost, "sync", nil, nil, nil)
}

// Intents returns the open intents, oldest first.
func (s *Store) Intents(ctx context.Context) ([]state.Intent, error) {
	var out Intents
	err := s.call(ctx, http.MethodGet, "intents", nil, nil, &out)
	return out.Intents, err
}

// Record appends events. If the agent refuses some of them, Record returns the
// error of the first refused event.
func (s *Store) Record(ctx context.Context, events ...state.Event) error {
	if len(events) == 0 {
		return nil
	}
	results, err := s.results(ctx, "events/record", workerEvents{events}, len(events))
	for _, r := range results {
		if err == nil {
			err = r.Err()
		}
	}
	return err
}

// Events returns the events that the query selects.
func (s *Store) Events(ctx context.Context, q state.EventQuery) ([]state.Event, error) {
	if q.Newest || q.Before > 0 {
		return nil, fault.New(fault.Invalid, "a worker reads events from the oldest on")
	}
	query := url.Values{"after": {strconv.FormatInt(q.After, 10)}, "limit": {strconv.Itoa(q.Limit)}}
	if q.Object != nil {
		query.Set("kind", q.Object.Kind)
		query.Set("name", q.Object.Name)
	}
	var out workerEvents
	err := s.call(ctx, http.MethodGet, "events", query, nil, &out)
	return out.Events, err
}
