package workerapi

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// maxBody bounds a worker's request, in bytes. The statuses of some thousand
// machines fit.
const maxBody = 16 << 20

// smallBody bounds the request of a call with few elements, in bytes.
const smallBody = 256 << 10

// Options are the dependencies of Handlers.
type Options struct {
	Backend state.Backend
	// Count receives the counts of a type's worker. The handlers check the
	// number of counts, but not the names of actions in them. If Count is nil,
	// the handlers drop the counts.
	Count func(t spec.ContainerType, counts Counts)
	// Ensure makes an image usable for a container type and returns the image's
	// id in the hypervisor.
	Ensure  func(ctx context.Context, t spec.ContainerType, reference string, report func(client.Progress)) (string, error)
	Streams raw.Streams
}

// Handlers answer the calls of workers.
type Handlers struct {
	o     Options
	named namedImages
}

// NewHandlers returns the handlers of workers' calls.
func NewHandlers(o Options) *Handlers { return &Handlers{o: o} }

// Route is a call for workers. The path's {type} is a container type or
// allTypes. The server checks that the caller has permission to act for this
// type.
type Route struct {
	Method, Path, Summary string
	Handle                http.HandlerFunc
	// Request is the body's type, for the OpenAPI document.
	Request reflect.Type
	// Body bounds the request's body in bytes.
	Body int64
	// Stream is true for routes without a deadline.
	Stream bool
}

// Routes returns the routes for workers in separate processes.
func (h *Handlers) Routes() []Route {
	rows := []Route{
		{Method: "GET", Path: "objects", Summary: "The objects that a worker may see", Handle: worker(h, (*call).list)},
		{Method: "POST", Path: "get", Summary: "Some objects by name", Handle: worker(h, (*call).get)},
		{Method: "POST", Path: "write", Summary: "Change objects", Handle: worker(h, (*call).write)},
		{Method: "GET", Path: "watch", Summary: "The names of objects as they change, a line each time", Handle: worker(h, (*call).watch), Stream: true},
		{Method: "GET", Path: "intents", Summary: "The open intents", Handle: worker(h, (*call).intents)},
		{Method: "POST", Path: "intents/begin", Summary: "Write intents down", Handle: worker(h, (*call).begin)},
		{Method: "POST", Path: "intents/end", Summary: "Forget intents", Handle: worker(h, (*call).end)},
		{Method: "POST", Path: "sync", Summary: "Make all earlier changes durable", Handle: worker(h, (*call).sync), Body: smallBody},
		{Method: "GET", Path: "events", Summary: "Events of the machines", Handle: worker(h, (*call).events)},
		{Method: "POST", Path: "events/record", Summary: "Record events", Handle: worker(h, (*call).record)},
		{Method: "GET", Path: "events/watch", Summary: "A line whenever there are new events", Handle: worker(h, (*call).watchEvents), Stream: true},
		{Method: "POST", Path: "counts", Summary: "Record passes and operations", Handle: worker(h, (*call).counts), Body: smallBody},
		{Method: "POST", Path: "images/ensure", Summary: "Make an image usable for the type", Handle: worker(h, (*call).ensureImage), Request: reflect.TypeFor[client.ImageRequest](), Stream: true},
	}
	for i := range rows {
		rows[i].Path = "/v1/worker/{type}/" + rows[i].Path
		if rows[i].Body == 0 {
			rows[i].Body = maxBody
		}
	}
	return rows
}

// call is a request of a worker.
type call struct {
	h *Handlers
	w http.ResponseWriter
	r *http.Request
	// t is empty if the call is for all types.
	t     spec.ContainerType
	store state.Backend
}

// worker turns a method of call into a handler. The handler answers an error as
// a problem.
func worker(h *Handlers, answer func(*call) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := call{h: h, w: w, r: r, store: h.o.Backend}
		if t := spec.ContainerType(r.PathValue("type")); t != allTypes {
			if _, known := t.Info(); !known {
				raw.WriteProblem(w, raw.NewProblem(http.StatusNotFound, fault.NotFound, "there is no such container type"))
				return
			}
			c.t = t
			c.store = restrict(h.o.Backend, t)
		}
		if err := answer(&c); err != nil {
			raw.WriteProblem(w, raw.ProblemOf(err))
		}
	}
}

// list fails with fault.NotReady until the agent has restored the type's lost
// records. A worker may outlive an agent and its store, and must not see the
// records of a new store that are still incomplete.
func (c *call) list() error {
	q, err := raw.Query(c.r, "kind")
	if err != nil {
		return err
	}
	host, _, revision, err := reconcile.Host{Store: c.h.o.Backend}.Read(c.r.Context())
	if err != nil {
		return err
	}
	if c.t != "" && revision > 0 && !host.Recovery.Scanned(string(c.t)) {
		return fault.New(fault.NotReady, "the records of %s machines are not complete yet: their instances were not compared with them", c.t)
	}
	objects, revision, err := c.store.List(c.r.Context(), q["kind"]...)
	if err == nil {
		answer(c.w, objectList{revision, objects})
	}
	return err
}

func (c *call) get() error {
	var in Names
	if err := raw.Decode(c.r, &in); err != nil {
		return err
	}
	out := Results{Results: make([]Result, len(in.IDs))}
	for i, id := range in.IDs {
		out.Results[i] = resultOf(c.store.Get(c.r.Context(), id))
	}
	answer(c.w, out)
	return nil
}

func (c *call) write() error {
	var in Writes
	if err := raw.Decode(c.r, &in); err != nil {
		return err
	}
	results, err := c.store.Write(c.r.Context(), in.Mode, in.Writes...)
	if err != nil {
		return err
	}
	out := Results{Results: make([]Result, len(results))}
	for i, r := range results {
		out.Results[i] = resultOf(r.Object, r.Err)
	}
	answer(c.w, out)
	return nil
}

func (c *call) intents() error {
	intents, err := c.store.Intents(c.r.Context())
	if err == nil {
		answer(c.w, Intents{intents})
	}
	return err
}

func (c *call) begin() error {
	var in Intents
	if err := raw.Decode(c.r, &in); err != nil {
		return err
	}
	out := Results{Results: make([]Result, len(in.Intents))}
	for i, intent := range in.Intents {
		if err := c.store.Begin(c.r.Context(), intent); err != nil {
			out.Results[i] = resultOf(state.Object{}, err)
		}
	}
	answer(c.w, out)
	return nil
}

func (c *call) end() error {
	var in tokenList
	if err := raw.Decode(c.r, &in); err != nil {
		return err
	}
	err := c.store.End(c.r.Context(), in.Tokens...)
	if err == nil {
		answer(c.w, struct{}{})
	}
	return err
}

func (c *call) sync() error {
	err := c.store.Sync(c.r.Context())
	if err == nil {
		answer(c.w, struct{}{})
	}
	return err
}

func (c *call) record() error {
	var in workerEvents
	if err := raw.Decode(c.r, &in); err != nil {
		return err
	}
	out := Results{Results: make([]Result, len(in.Events))}
	allowed := in.Events
	if own, ok := c.store.(*restricted); ok {
		allowed = nil
		for i, e := range in.Events {
			if err := own.mayRecord(c.r.Context(), e); err != nil {
				out.Results[i] = resultOf(state.Object{}, err)
				continue
			}
			allowed = append(allowed, e)
		}
	}
	if err := c.h.o.Backend.Record(c.r.Context(), allowed...); err != nil {
		return err
	}
	answer(c.w, out)
	return nil
}

func (c *call) events() error {
	q, err := raw.Query(c.r, "after", "kind", "name", "limit")
	if err != nil {
		return err
	}
	var query state.EventQuery
	if q.Has("kind") {
		query.Object = &state.ID{Kind: q.Get("kind"), Name: q.Get("name")}
	}
	var limit int64
	for name, to := range map[string]*int64{"after": &query.After, "limit": &limit} {
		if text := q.Get(name); text != "" {
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil || *to < 0 {
				return fault.New(fault.Invalid, "the query parameter %s is not a number", name)
			}
		}
	}
	query.Limit = int(min(limit, 10_000))
	events, err := c.store.Events(c.r.Context(), query)
	if err == nil {
		answer(c.w, workerEvents{events})
	}
	return err
}

func (c *call) watch() error {
	q, err := raw.Query(c.r, "kind")
	if err != nil {
		return err
	}
	batches, err := c.store.Watch(c.r.Context(), q["kind"]...)
	if err != nil {
		return err
	}
	pass(c, batches, func(ids []state.ID) line { return line{IDs: &ids} })
	return nil
}

func (c *call) watchEvents() error {
	signs, err := c.store.WatchEvents(c.r.Context())
	if err != nil {
		return err
	}
	pass(c, signs, func(struct{}) line { return line{Events: true} })
	return nil
}

// pass sends a line for each value, and heartbeats in between. When the stream
// ends, the worker treats its watch as lost.
func pass[T any](c *call, from <-chan T, lineOf func(T) line) {
	l := raw.NewLines(c.w)
	// Send an empty line at once to confirm that the agent serves the stream.
	if err := l.Send(line{}); err != nil {
		l.Fail(err)
		return
	}
	raw.Follow(c.r.Context(), c.h.o.Streams, l, from, 0, func(v T) error { return l.Send(lineOf(v)) })
}
